"""Futures: one door for threads and loops, settled once, whoever waits in whatever way."""

import asyncio
import copy
import pickle
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from danaus.errors import CallCancelled, ConfigError, WrongThread
from danaus.runtime.callbacks import CallbackThread
from danaus.runtime.context import Running, running
from danaus.runtime.future import Future
from danaus.runtime.reactor import Reactor

SOON_S = 10.0
"""Never reached when all is well."""


@dataclass
class Runtime:
    reactor: Reactor = field(default_factory=lambda: Reactor("test-io"))
    callbacks: CallbackThread = field(default_factory=lambda: CallbackThread("test-callbacks"))


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    runtime = Runtime()
    runtime.reactor.start()
    yield runtime
    runtime.callbacks.close()
    runtime.reactor.close()


class Claimed:
    """Counts how often somebody received an outcome."""

    def __init__(self) -> None:
        self.times = 0

    def received(self) -> None:
        self.times += 1


def in_thread(function: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """A thread, and what it returned or raised."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


def fail() -> object:
    raise KeyError("remote")


# ---- threads


def test_a_settled_value_is_there_at_once(runtime: Runtime) -> None:
    future = Future[int](runtime)
    assert not future.done()
    assert future.settle(lambda: 7)
    assert future.done()
    assert future.get() == future.get(0) == 7
    assert future.exception() is None


def test_a_thread_waits_until_another_settles(runtime: Runtime) -> None:
    future = Future[int](runtime)
    thread, outcome = in_thread(lambda: future.get(SOON_S))
    runtime.reactor.post(lambda: future.settle(lambda: 7))
    thread.join()
    assert outcome == [7]


def test_all_threads_that_wait_get_the_value(runtime: Runtime) -> None:
    future = Future[list[int]](runtime)
    waiting = [in_thread(lambda: future.get(SOON_S)) for _ in range(6)]
    future.settle(lambda: [7])
    for thread, outcome in waiting:
        thread.join()
        assert outcome[0] is future.get()


def test_the_value_is_loaded_once_by_the_first_who_asks(runtime: Runtime) -> None:
    loaders: list[str] = []

    def load() -> str:
        loaders.append(threading.current_thread().name)
        return loaders[-1]

    future = Future[str](runtime)
    runtime.reactor.post(lambda: future.settle(load))
    assert future.get(SOON_S) == threading.current_thread().name
    thread, outcome = in_thread(future.get)
    thread.join()
    assert outcome == loaders == [threading.current_thread().name]


def test_what_the_load_raises_is_raised_to_everybody(runtime: Runtime) -> None:
    future = Future[object](runtime)
    future.settle(fail)
    for _ in range(2):
        with pytest.raises(KeyError, match="remote"):
            future.get()
    assert isinstance(future.exception(), KeyError)


def test_an_interrupt_of_the_load_leaves_the_value_for_the_next_who_asks(runtime: Runtime) -> None:
    attempts: list[int] = []

    def load() -> int:
        attempts.append(1)
        if len(attempts) == 1:
            raise KeyboardInterrupt
        return 7

    future = Future[int](runtime)
    future.settle(load)
    with pytest.raises(KeyboardInterrupt):
        future.get()
    assert future.get() == 7


def test_an_error_is_raised(runtime: Runtime) -> None:
    future = Future[int](runtime)
    error = ValueError("settled")
    assert future.settle_error(error)
    with pytest.raises(ValueError, match="settled") as caught:
        future.get()
    assert caught.value is error
    assert future.exception() is error


def test_the_first_outcome_stands(runtime: Runtime) -> None:
    future = Future[int](runtime)
    future.settle(lambda: 1)
    assert not future.settle(lambda: 2)
    assert not future.settle_error(ValueError())
    assert not future.cancel()
    assert future.get() == 1
    failed = Future[int](runtime)
    failed.settle_error(ValueError("first"))
    assert not failed.settle(lambda: 2)
    with pytest.raises(ValueError, match="first"):
        failed.get()


def test_a_get_that_takes_too_long_gives_up_and_a_later_one_finds_the_value(runtime: Runtime) -> None:
    future = Future[int](runtime)
    for timeout_s in (0, 0.001):
        with pytest.raises(TimeoutError, match="the call goes on"):
            future.get(timeout_s)
        with pytest.raises(TimeoutError):
            future.exception(timeout_s)
    assert not future.done()
    future.settle(lambda: 7)
    assert future.get(0) == 7


def test_a_timeout_that_the_call_raised_is_its_outcome(runtime: Runtime) -> None:
    future = Future[int](runtime)
    error = TimeoutError("of the call")
    future.settle_error(error)
    assert future.exception(1) is error


def test_waits_that_gave_up_leave_nothing_behind(runtime: Runtime) -> None:
    future = Future[int](runtime)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            future.get(0)
    assert not future._waiters


@pytest.mark.parametrize(
    ("timeout_s", "error"), [(-1, ConfigError), (float("nan"), ConfigError), ("1", TypeError), (True, TypeError)]
)
def test_a_timeout_that_is_none_is_refused_even_if_the_value_is_there(
    runtime: Runtime, timeout_s: object, error: type[Exception]
) -> None:
    future = Future[int](runtime)
    future.settle(lambda: 7)
    with pytest.raises(error, match="timeout_s is"):
        future.get(timeout_s)  # type: ignore[arg-type]


def test_the_thread_that_moves_messages_may_not_wait(runtime: Runtime) -> None:
    future = Future[int](runtime)
    raised: list[type[Exception]] = []
    done = threading.Event()

    def wait() -> None:
        try:
            future.get(SOON_S)
        except WrongThread as error:
            raised.append(type(error))
        done.set()

    runtime.reactor.post(wait)
    assert done.wait(SOON_S)
    assert raised == [WrongThread]


# ---- actors


class FakeActor:
    """An actor whose thread is the test's."""

    def __init__(self) -> None:
        self.wakes: list[Callable[[], None] | None] = []
        self.urgent = 0
        self.may_block = True
        self.wake_set = threading.Event()

    def runs_here(self) -> bool:
        return True

    def check_may_block(self) -> None:
        if not self.may_block:
            raise WrongThread("await instead")

    def run_urgent(self) -> None:
        self.urgent += 1

    def set_wake(self, wake: Callable[[], None] | None) -> None:
        self.wakes.append(wake)
        if wake is not None:
            self.wake_set.set()


@pytest.fixture
def actor(runtime: Runtime) -> Iterator[FakeActor]:
    actor = FakeActor()
    token = running.set(Running(runtime, actor, None))
    yield actor
    running.reset(token)


def test_an_actor_that_waits_does_what_is_urgent_and_waits_on(runtime: Runtime, actor: FakeActor) -> None:
    future = Future[int](runtime)

    def urge_then_settle() -> None:
        assert actor.wake_set.wait(SOON_S)
        actor.wake_set.clear()
        wake = actor.wakes[-1]
        assert wake is not None
        wake()
        assert actor.wake_set.wait(SOON_S)  # it waits again
        future.settle(lambda: 7)

    thread, outcome = in_thread(urge_then_settle)
    assert future.get(SOON_S) == 7
    thread.join()
    assert outcome == [None]
    assert actor.urgent >= 1
    assert actor.wakes[-1] is None


def test_an_actor_gives_up_when_its_time_is_over(runtime: Runtime, actor: FakeActor) -> None:
    with pytest.raises(TimeoutError):
        Future[int](runtime).get(0.001)
    assert actor.wakes[-1] is None


def test_on_the_loop_of_an_actor_get_raises_even_if_the_value_is_there(runtime: Runtime, actor: FakeActor) -> None:
    actor.may_block = False
    future = Future[int](runtime)
    future.settle(lambda: 7)
    with pytest.raises(WrongThread):
        future.get()


# ---- cancelling


def test_cancelling_tells_whoever_answers_once_and_ends_every_wait(runtime: Runtime) -> None:
    told: list[int] = []
    future = Future[int](runtime, lambda: told.append(1))
    thread, outcome = in_thread(lambda: future.get(SOON_S))
    assert future.cancel()
    assert not future.cancel()
    thread.join()
    assert isinstance(outcome[0], CallCancelled)
    assert told == [1]
    assert future.cancelled()
    assert future.done()


def test_a_settled_future_is_not_cancelled(runtime: Runtime) -> None:
    told: list[int] = []
    future = Future[int](runtime, lambda: told.append(1))
    future.settle(lambda: 7)
    assert not future.cancel()
    assert not future.cancelled()
    assert told == []


# ---- callbacks


@pytest.mark.parametrize("before", [True, False])
def test_a_callback_runs_once_on_the_thread_for_callbacks(runtime: Runtime, before: bool) -> None:
    future = Future[int](runtime)
    got: list[tuple[object, str]] = []
    done = threading.Event()

    def callback(settled: Future[int]) -> None:
        got.append((settled.get(), threading.current_thread().name))
        done.set()

    if before:
        future.add_done_callback(callback)
    future.settle(lambda: 7)
    if not before:
        future.add_done_callback(callback)
    assert done.wait(SOON_S)
    runtime.callbacks.close()
    assert got == [(7, "test-callbacks")]


def test_callbacks_run_in_the_order_they_were_added(runtime: Runtime) -> None:
    future = Future[int](runtime)
    ran: list[int] = []
    for number in range(5):
        future.add_done_callback(lambda _, number=number: ran.append(number))
    future.cancel()
    runtime.callbacks.close()
    assert ran == [0, 1, 2, 3, 4]


# ---- claims


@pytest.mark.parametrize("error", [True, False])
def test_a_failure_counts_as_received_when_somebody_looked_and_not_before(runtime: Runtime, error: bool) -> None:
    claim = Claimed()
    future = Future[object](runtime)
    if error:
        future.settle_error(KeyError("remote"), claim)
    else:
        future.settle(fail, claim)
    assert future.done()
    assert claim.times == 0
    with pytest.raises(KeyError):
        future.get()
    assert claim.times == 1


# ---- loops


async def test_awaiting_gives_the_value_or_raises(runtime: Runtime) -> None:
    future, failed, ready = Future[int](runtime), Future[int](runtime), Future[int](runtime)
    ready.settle(lambda: 1)
    runtime.reactor.post(lambda: future.settle(lambda: 7))
    runtime.reactor.post(lambda: failed.settle_error(ValueError("settled")))
    assert (await ready, await future) == (1, 7)
    with pytest.raises(ValueError, match="settled"):
        await failed


async def test_many_tasks_may_await_one_future_and_gather_may_take_many(runtime: Runtime) -> None:
    async def value(future: Future[int]) -> int:
        return await future

    futures = [Future[int](runtime) for _ in range(3)]
    tasks = [asyncio.create_task(value(futures[0])) for _ in range(3)]
    for number, future in enumerate(futures):
        runtime.reactor.post(lambda future=future, number=number: future.settle(lambda: number))
    assert await asyncio.gather(*(value(future) for future in futures)) == [0, 1, 2]
    assert await asyncio.gather(*tasks) == [0, 0, 0]


async def test_a_task_that_is_cancelled_cancels_what_it_awaits(runtime: Runtime) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    future = Future[int](runtime, lambda: loop.call_soon_threadsafe(told.set))

    async def value() -> int:
        return await future

    task = asyncio.create_task(value())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(told.wait(), SOON_S)
    assert future.cancelled()


async def test_wait_for_gives_up_and_cancels(runtime: Runtime) -> None:
    future = Future[int](runtime)

    async def value() -> int:
        return await future

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(value(), 0.001)
    assert future.cancelled()


def test_a_future_that_outlives_the_loop_that_awaited_it_settles_all_the_same(runtime: Runtime) -> None:
    future = Future[int](runtime)

    async def begin() -> None:
        waiting = future.__await__()
        next(waiting)

    asyncio.run(begin())
    assert future.settle(lambda: 7)
    assert future.get() == 7


# ---- what it is


def test_it_says_what_it_is_about_and_how_far_it_is(runtime: Runtime) -> None:
    future, cancelled, nameless = Future[int](runtime, what="counter.add"), Future[int](runtime), Future[int](runtime)
    assert repr(future) == "<Future counter.add pending>"
    future.settle(lambda: 7)
    cancelled.cancel()
    assert repr(future) == "<Future counter.add done>"
    assert repr(cancelled) == "<Future cancelled>"
    assert repr(nameless) == "<Future pending>"


def test_it_stays_in_its_process(runtime: Runtime) -> None:
    future = Future[int](runtime)
    for copied in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError, match="stays in its process"):
            copied(future)
