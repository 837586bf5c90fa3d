"""Semantics 11: deadlines and cancels reach the actor."""

import asyncio
import threading

import pytest

from behaviour.conftest import Cluster
from danaus import Actor, CallCancelled, CallTimeout, endpoint
from danaus.testing.clock import VirtualClock
from danaus.testing.hosts import InMemoryHosts


class Slow(Actor):
    """Has endpoints that wait, and says what became of them."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.cancelled = asyncio.Event()
        self.release = threading.Event()

    @endpoint
    async def wait_async(self) -> None:
        self.log.append("waits")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            self.cancelled.set()
            raise

    @endpoint
    async def swallow(self) -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.log.append("swallowed")
        return "ended well"

    @endpoint
    def wait_sync(self, witness: "Slow", other: "Slow") -> None:
        witness.note.call_one("begins").get(20)
        self.log.append("begins")
        other.wait_until_let_go.call_one().get(20)
        self.log.append("ends")

    @endpoint
    async def wait_until_let_go(self) -> None:
        self.gate = asyncio.Event()
        await self.gate.wait()

    @endpoint
    def note(self, text: str) -> str:
        self.log.append(text)
        return text

    @endpoint
    def read(self) -> list[str]:
        return self.log


def test_a_call_that_takes_too_long_ends_with_the_points_that_did_not_answer(cluster: Cluster) -> None:
    slow = cluster.hosts.spawn_procs({"gpus": 2}).spawn("slow", Slow)
    slow.read.call().get(20)
    with pytest.raises(CallTimeout, match=r"slow.wait_async had no answer from gpus=0, gpus=1 within 0.05 s") as caught:
        slow.wait_async.options(timeout_s=0.05).call().get(20)
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.timeout_s == 0.05


def test_a_running_async_endpoint_is_cancelled_by_its_deadline_and_by_cancel(cluster: Cluster) -> None:
    slow = cluster.hosts.spawn_procs().spawn("slow", Slow)
    with pytest.raises(CallTimeout):
        slow.wait_async.options(timeout_s=0.05).call_one().get(20)
    waiting = slow.wait_async.call_one()
    waiting.cancel()
    slow.note.call_one("after").get(20)
    log = slow.read.call_one().get(20)
    assert log.count("waits") == log.count("cancelled")
    assert log[-1] == "after"
    with pytest.raises(CallCancelled):
        waiting.get(20)


def test_an_endpoint_may_swallow_its_cancel_and_the_actor_goes_on(cluster: Cluster) -> None:
    slow = cluster.hosts.spawn_procs().spawn("slow", Slow)
    slow.read.call_one().get(20)
    with pytest.raises(CallTimeout):
        slow.swallow.options(timeout_s=0.05).call_one().get(20)
    assert slow.read.call_one().get(20) == ["swallowed"]


def test_a_queued_message_is_withdrawn(cluster: Cluster) -> None:
    slow = cluster.hosts.spawn_procs().spawn("slow", Slow)
    blocking = slow.wait_async.call_one()
    queued = [slow.note.call_one(f"note {number}") for number in range(3)]
    expired = slow.note.options(timeout_s=0.05).call_one("late")
    queued[1].cancel()
    with pytest.raises(CallTimeout):
        expired.get(20)
    blocking.cancel()
    assert [queued[0].get(20), queued[2].get(20)] == ["note 0", "note 2"]
    notes = [entry for entry in slow.read.call_one().get(20) if entry.startswith(("note", "late"))]
    assert notes == ["note 0", "note 2"]


def test_a_running_sync_endpoint_is_not_interrupted(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    slow, gate = procs.slice(gpus=0).spawn("slow", Slow), procs.slice(gpus=1).spawn("gate", Slow)
    witness = procs.slice(gpus=0).spawn("witness", Slow)
    running = slow.wait_sync.call_one(witness, gate)
    while not witness.read.call_one().get(20):
        continue
    running.cancel()
    behind = slow.read.call_one()
    with pytest.raises(TimeoutError):
        behind.get(0.05)
    procs.slice(gpus=1).stop(now=True).get(20)  # the call that it waits for ends with that, and so does it
    assert behind.get(20) == ["begins"]


def test_cancelling_an_awaiting_task_cancels_the_call(cluster: Cluster) -> None:
    slow = cluster.hosts.spawn_procs().spawn("slow", Slow)
    slow.read.call_one().get(20)

    async def main() -> None:
        task = asyncio.ensure_future(slow.wait_async.call_one())
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "note" in await slow.note.call_one("note")

    asyncio.run(main())
    log = slow.read.call_one().get(20)
    assert log.count("waits") == log.count("cancelled")


def test_time_left_counts_from_the_call_and_runs_on_the_clock_of_the_host() -> None:
    clock = VirtualClock()
    with InMemoryHosts(1, clock=clock) as memory:
        slow = memory.hosts.spawn_procs().spawn("slow", Slow)
        slow.read.call_one().get()
        waiting = slow.wait_async.options(timeout_s=100).call_one()
        clock.advance(99)
        assert slow.swallow.call_one().done() is False
        assert not waiting.done()
        clock.advance(2)
        with pytest.raises(CallTimeout, match="within 100 s"):
            waiting.get()
