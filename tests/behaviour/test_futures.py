"""Semantics 14 and the interface of `Future`."""

import asyncio
import threading
import time

import pytest

from behaviour.conftest import Cluster
from danaus import Actor, CallCancelled, Future, endpoint

TRANSPORTS = ("in-memory", "unix")


class Turnstile(Actor):
    """Lets calls end when told."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    @endpoint
    def echo(self, value: object) -> object:
        return value

    @endpoint
    def fail(self) -> None:
        raise KeyError("no")

    @endpoint
    async def block(self) -> None:
        await self.open.wait()


@pytest.fixture
def turnstile(cluster: Cluster) -> Turnstile:
    made = cluster.hosts.spawn_procs().spawn("turnstile", Turnstile)
    made.initialized.get(20)
    return made


def test_get_gives_the_value_again_and_again(turnstile: Turnstile) -> None:
    future = turnstile.echo.call_one([1])
    first = future.get(20)
    assert future.get() is first
    assert future.done()
    assert future.exception() is None


def test_get_with_a_timeout_raises_and_the_call_goes_on(turnstile: Turnstile) -> None:
    future = turnstile.block.call_one()
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="the call goes on"):
        future.get(0.05)
    assert 0.05 <= time.monotonic() - begun < 10
    with pytest.raises(TimeoutError):
        future.exception(0)
    assert not future.done()
    assert not future.cancelled()
    future.cancel()


def test_exception_gives_what_get_would_raise(turnstile: Turnstile) -> None:
    future = turnstile.fail.call_one()
    assert isinstance(future.exception(20), KeyError)
    for _ in range(2):
        with pytest.raises(KeyError):
            future.get()


def test_cancel_ends_it_once(turnstile: Turnstile) -> None:
    future = turnstile.block.call_one()
    assert future.cancel()
    assert not future.cancel()
    assert future.cancelled()
    assert future.done()
    with pytest.raises(CallCancelled):
        future.get()
    done = turnstile.echo.call_one(1)
    done.get(20)
    assert not done.cancel()
    assert done.get() == 1


def test_get_works_from_many_threads_at_once(turnstile: Turnstile) -> None:
    future = turnstile.echo.call_one({"a": 1})
    seen: list[object] = []
    threads = [threading.Thread(target=lambda: seen.append(future.get(20))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert all(each is seen[0] for each in seen)
    assert seen[0] == {"a": 1}


def test_threads_that_call_at_once_each_get_their_own_answers(turnstile: Turnstile) -> None:
    wrong: list[object] = []

    def call(thread: int) -> None:
        for number in range(100):
            answer = turnstile.echo.call_one((thread, number)).get(20)
            if answer != (thread, number):
                wrong.append(answer)

    threads = [threading.Thread(target=call, args=(thread,)) for thread in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_await_gather_and_wait_for_work_under_asyncio(turnstile: Turnstile) -> None:
    async def main() -> None:
        assert await turnstile.echo.call_one(1) == 1
        assert await asyncio.gather(*(turnstile.echo.call_one(n) for n in range(20))) == list(range(20))
        assert await asyncio.wait_for(turnstile.echo.call_one("x"), 20) == "x"
        with pytest.raises(KeyError):
            await turnstile.fail.call_one()
        blocked = turnstile.block.call_one()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(blocked, 0.05)
        assert blocked.cancelled()  # as asyncio does with what it waited for
        assert await turnstile.echo.call_one(2) == 2

    asyncio.run(main())


def test_many_may_await_one_future_also_on_several_loops(turnstile: Turnstile) -> None:
    future = turnstile.echo.call_one([7])

    async def wait() -> object:
        return await future

    async def twice() -> list[object]:
        return await asyncio.gather(wait(), wait())

    values: list[object] = []
    threads = [threading.Thread(target=lambda: values.extend(asyncio.run(twice()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [[7]] * 6


def test_get_works_under_a_foreign_loop_where_it_blocks_that_thread(turnstile: Turnstile) -> None:
    async def main() -> object:
        return turnstile.echo.call_one(5).get(20)

    assert asyncio.run(main()) == 5


def test_a_done_callback_runs_once_with_the_future_and_may_wait_for_others(turnstile: Turnstile) -> None:
    seen: list[object] = []
    ran = threading.Event()

    def callback(future: Future[object]) -> None:
        seen.append((future.get(), turnstile.echo.call_one("inner").get(20)))
        ran.set()

    turnstile.echo.call_one("outer").add_done_callback(callback)
    assert ran.wait(20)
    late = threading.Event()
    done = turnstile.echo.call_one(1)
    done.get(20)
    done.add_done_callback(lambda _: late.set())
    assert late.wait(20)
    assert seen == [("outer", "inner")]


def test_waiting_in_an_awaited_coroutine_of_another_thread_is_fine(turnstile: Turnstile) -> None:
    async def main() -> object:
        return await asyncio.to_thread(lambda: turnstile.echo.call_one(3).get(20))

    assert asyncio.run(main()) == 3


class Delegating(Actor):
    """Waits on threads that it starts itself."""

    @endpoint
    async def in_thread(self, turnstile: Turnstile) -> object:
        return await asyncio.to_thread(lambda: turnstile.echo.call_one(3).get(20))

    @endpoint
    def in_plain_thread(self, turnstile: Turnstile) -> list[object]:
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(turnstile.echo.call_one(4).get(20)))
        thread.start()
        thread.join()
        return seen


def test_threads_that_an_actor_starts_may_call_and_wait(cluster: Cluster, turnstile: Turnstile) -> None:
    delegating = cluster.hosts.spawn_procs().spawn("delegating", Delegating)
    assert delegating.in_thread.call_one(turnstile).get(20) == 3
    assert delegating.in_plain_thread.call_one(turnstile).get(20) == [4]


def test_a_future_says_what_it_is(turnstile: Turnstile) -> None:
    future = turnstile.block.call_one()
    assert "pending" in repr(future)
    assert "turnstile.block" in repr(future)
    future.cancel()
    assert "cancelled" in repr(future)
    assert "done" in repr(turnstile.initialized)
