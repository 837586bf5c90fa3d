"""Semantics 6 and 7: where endpoints run, and what does not hold them up."""

import asyncio
import threading
import time

import pytest

from behaviour.actors import Echo
from behaviour.conftest import Cluster
from danaus import Actor, WrongThread, endpoint

TRANSPORTS = ("in-memory", "unix")


class Mixed(Actor):
    """Both kinds of endpoint."""

    def __init__(self) -> None:
        self.built_on = threading.get_ident()
        self.steps: list[str] = []
        self.done: asyncio.Event | None = None

    @endpoint
    def thread(self) -> tuple[int, int, bool]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self.built_on, threading.get_ident(), False
        return self.built_on, threading.get_ident(), True

    @endpoint
    async def loop(self) -> tuple[int, int]:
        return threading.get_ident(), id(asyncio.get_running_loop())

    @endpoint
    async def start_task(self) -> None:
        self.done = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self.work())

    async def work(self) -> None:
        for step in range(3):
            self.steps.append(f"step {step}")
            await asyncio.sleep(0.005)
        assert self.done is not None
        self.done.set()

    @endpoint
    def read(self) -> list[str]:
        return self.steps

    @endpoint
    async def wait_done(self) -> None:
        assert self.done is not None
        await self.done.wait()

    @endpoint
    def sync_then_async(self) -> object:
        return self.double(2)

    def double(self, number: int) -> int:
        return 2 * number

    @endpoint
    async def get_here(self, echo: Echo) -> object:
        return echo.echo.call_one(1).get(10)

    @endpoint
    async def await_here(self, echo: Echo) -> object:
        return await echo.echo.call_one(1), await echo.echo_async.call_one(2)

    @endpoint
    def get_in_sync(self, echo: Echo) -> object:
        return echo.echo.call_one(1).get(10)


class Burner(Actor):
    """Burns Python and lets nobody else in its proc have much of it."""

    @endpoint
    def burn(self, seconds: float) -> int:
        end, turns = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            turns += 1
        return turns


def test_sync_endpoints_run_on_the_actors_thread_with_no_running_loop(cluster: Cluster) -> None:
    mixed = cluster.hosts.spawn_procs().spawn("mixed", Mixed)
    built_on, runs_on, has_loop = mixed.thread.call_one().get(20)
    assert built_on == runs_on
    assert not has_loop


def test_async_endpoints_run_on_the_actors_own_loop_and_thread(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    first, second = procs.spawn("first", Mixed), procs.spawn("second", Mixed)
    thread, loop = first.loop.call_one().get(20)
    assert (thread, loop) == first.loop.call_one().get(20)
    assert thread == first.thread.call_one().get(20)[1]
    assert second.loop.call_one().get(20)[0] != thread


def test_tasks_that_an_async_endpoint_left_go_on_between_messages(cluster: Cluster) -> None:
    mixed = cluster.hosts.spawn_procs().spawn("mixed", Mixed)
    mixed.start_task.call_one().get(20)
    mixed.wait_done.call_one().get(20)
    assert mixed.read.call_one().get(20) == ["step 0", "step 1", "step 2"]


def test_a_method_of_the_actor_is_called_directly_inside_it(cluster: Cluster) -> None:
    mixed = cluster.hosts.spawn_procs().spawn("mixed", Mixed)
    assert mixed.sync_then_async.call_one().get(20) == 4


def test_waiting_on_ones_own_loop_raises_and_says_to_await(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    mixed, echo = procs.spawn("mixed", Mixed), procs.spawn("echo", Echo)
    with pytest.raises(WrongThread, match="await"):
        mixed.get_here.call_one(echo).get(20)
    assert mixed.await_here.call_one(echo).get(20) == (1, 2)
    assert mixed.get_in_sync.call_one(echo).get(20) == 1


def test_who_burns_python_slows_its_own_proc_only(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    burner = procs.slice(gpus=0).spawn("burner", Burner)
    echo = procs.spawn("echo", Echo)
    burner.initialized.get(20)
    burning = burner.burn.call_one(1.0)
    for number in range(5):
        assert echo.slice(gpus=1).echo.call_one(number).get(20) == number
    other = cluster.hosts.spawn_procs()  # the agent answers
    assert other.spawn("echo", Echo).echo.call_one(1).get(20) == 1
    assert burning.get(20) > 0


def test_its_neighbours_in_the_proc_still_answer(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    burner, echo = procs.spawn("burner", Burner), procs.spawn("echo", Echo)
    echo.echo.call_one(0).get(20)
    burning = burner.burn.call_one(0.5)
    assert echo.echo.call_one(1).get(20) == 1
    assert not burning.done()
    burning.get(20)


def test_a_large_message_arrives_whole_and_holds_up_no_other_pair(cluster: Cluster) -> None:
    echo = cluster.hosts.spawn_procs({"gpus": 2}).spawn("echo", Echo)
    echo.echo.call(0).get(20)
    data = bytes(range(256)) * (128 * 1024)  # 32 MiB
    large = echo.slice(gpus=0).echo.call_one(data)
    small = [echo.slice(gpus=1).echo.call_one(number) for number in range(10)]
    assert [each.get(20) for each in small] == list(range(10))
    assert large.get(20) == data


def test_within_one_pair_the_order_wins_over_size(cluster: Cluster) -> None:
    echo = cluster.hosts.spawn_procs().spawn("echo", Echo)
    order: list[str] = []
    data = b"x" * (8 * 1024 * 1024)
    large, small = echo.echo.call_one(data), echo.echo.call_one(1)
    large.call_when_settled(lambda: order.append("large"))
    small.call_when_settled(lambda: order.append("small"))
    assert small.get(20) == 1
    assert large.get(20) == data
    assert order == ["large", "small"]
