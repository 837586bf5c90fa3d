"""Semantics 9 and 10: what a call gives back, and what it raises."""

import asyncio
import threading

import pytest

from behaviour.actors import Echo
from behaviour.conftest import Cluster
from danaus import (
    Actor,
    ActorFailed,
    CallError,
    ConfigError,
    Failure,
    MeshFailed,
    Point,
    ValueMesh,
    current_rank,
    endpoint,
)


class Worker(Actor):
    """Fails where it is told, waits until let go."""

    def __init__(self) -> None:
        self.calls = 0
        self.open = asyncio.Event()

    @endpoint
    def work(self, fails_at: int | None = None) -> int:
        self.calls += 1
        rank = current_rank().rank
        if rank == fails_at:
            raise KeyError(f"rank {rank}")
        return rank * 10

    @endpoint
    async def work_or_wait(self, fails_at: int, waits_at: int) -> int:
        rank = current_rank().rank
        if rank == fails_at:
            raise ValueError(f"rank {rank}")
        if rank == waits_at:
            await self.open.wait()
        self.calls += 1
        return rank

    @endpoint
    def read(self) -> int:
        return self.calls

    @endpoint
    def fail_deep(self) -> None:
        try:
            {}["missing"]
        except KeyError as error:
            raise RuntimeError("it went wrong") from error

    @endpoint
    def stop_iteration(self) -> None:
        raise StopIteration("odd")


class Owner(Actor):
    """Owns workers, and writes down what it is told of them."""

    def __init__(self) -> None:
        self.told: list[Failure] = []
        self.heard = threading.Event()

    @endpoint
    def spawn(self, procs: object) -> Worker:
        self.workers = procs.spawn("worker", Worker)  # type: ignore[attr-defined]
        return self.workers

    @endpoint
    def broadcast(self, fails_at: int) -> None:
        self.workers.work.broadcast(fails_at)

    def __supervise__(self, failure: Failure) -> bool:
        self.told.append(failure)
        self.heard.set()
        return True

    @endpoint
    def wait_told(self) -> list[Failure]:
        while not self.told:
            self.workers.read.call().get(20)  # waiting lets supervision in
        return self.told


def test_a_call_returns_the_values_of_the_region_called(cluster: Cluster) -> None:
    workers = cluster.hosts.spawn_procs({"hosts": 2, "gpus": 2}).spawn("worker", Worker)
    values = workers.work.call().get(20)
    assert isinstance(values, ValueMesh)
    assert dict(values.extent) == {"hosts": 2, "gpus": 2}
    assert values.to_list() == [0, 10, 20, 30]
    turned = workers.slice(hosts=[1, 0], gpus=1).work.call().get(20)
    assert dict(turned.extent) == {"hosts": 2}
    assert turned.to_list() == [0, 10]  # ranks of the slice
    assert workers.slice(hosts=0, gpus=0).read.call_one().get(20) == 1


def test_a_rank_that_raises_ends_the_call_with_all_that_is_known(cluster: Cluster) -> None:
    workers = cluster.hosts.spawn_procs({"gpus": 3}).spawn("worker", Worker)
    workers.work.call().get(20)
    with pytest.raises(CallError) as caught:
        workers.work_or_wait.call(fails_at=1, waits_at=2).get(20)
    error = caught.value
    assert [(dict(point), type(each)) for point, each in error.failures.items()] == [({"gpus": 1}, ValueError)]
    assert all(isinstance(point, Point) for point in (*error.failures, *error.results, *error.pending))
    assert {"gpus": 2} in [dict(point) for point in error.pending]
    known = [dict(point) for point in (*error.results, *error.pending)]
    assert sorted(known, key=str) == [{"gpus": 0}, {"gpus": 2}]
    assert "worker.work_or_wait: 1 of 3 ranks failed" in str(error)
    assert "in work_or_wait" in str(error)


def test_the_other_ranks_keep_running_and_late_replies_are_dropped(cluster: Cluster) -> None:
    workers = cluster.hosts.spawn_procs({"gpus": 2}).spawn("worker", Worker)
    waiting = workers.work_or_wait.call(fails_at=0, waits_at=1)
    with pytest.raises(CallError):
        waiting.get(20)
    release = workers.slice(gpus=1).read.call_one()  # behind the one that waits
    assert not release.done()
    release.cancel()


def test_call_one_raises_what_the_endpoint_raised(cluster: Cluster) -> None:
    worker = cluster.hosts.spawn_procs().spawn("worker", Worker)
    with pytest.raises(KeyError, match="rank 0") as caught:
        worker.work.call_one(0).get(20)
    remote = caught.value.__cause__
    assert isinstance(remote, ActorFailed)
    assert remote.type_name == "KeyError"
    assert 'raise KeyError(f"rank {rank}")' in remote.traceback
    assert "danaus/runtime" not in remote.traceback


def test_the_remote_traceback_shows_the_causes_there(cluster: Cluster) -> None:
    worker = cluster.hosts.spawn_procs().spawn("worker", Worker)
    with pytest.raises(RuntimeError, match="it went wrong") as caught:
        worker.fail_deep.call_one().get(20)
    assert "KeyError: 'missing'" in str(caught.value.__cause__)


def test_an_odd_exception_is_raised_like_any_other(cluster: Cluster) -> None:
    worker = cluster.hosts.spawn_procs().spawn("worker", Worker)
    with pytest.raises(StopIteration):
        worker.stop_iteration.call_one().get(20)

    async def wait() -> None:
        await worker.stop_iteration.call_one()

    with pytest.raises(RuntimeError, match="StopIteration"):  # as in any coroutine
        asyncio.run(wait())


def test_return_exceptions_waits_for_all_and_puts_failures_in_place(cluster: Cluster) -> None:
    workers = cluster.hosts.spawn_procs({"gpus": 3}).spawn("worker", Worker)
    values = workers.work.options(return_exceptions=True).call(1).get(20)
    assert values.item(gpus=0) == 0
    assert values.item(gpus=2) == 20
    failure: object = values.item(gpus=1)
    assert isinstance(failure, KeyError)
    assert isinstance(failure.__cause__, ActorFailed)


def test_call_one_needs_exactly_one_actor(cluster: Cluster) -> None:
    workers = cluster.hosts.spawn_procs({"gpus": 2}).spawn("worker", Worker)
    with pytest.raises(ConfigError, match=r"call_one needs exactly one actor, worker has 2.*slice"):
        workers.work.call_one()
    assert workers.slice(gpus=[1]).work.call_one().get(20) == 0


def test_a_broadcast_may_be_ignored_or_waited_for(cluster: Cluster) -> None:
    workers = cluster.hosts.spawn_procs({"gpus": 2}).spawn("worker", Worker)
    workers.work.broadcast()
    assert workers.work.broadcast().get(20) is None
    assert workers.read.call().get(20).to_list() == [2, 2]


def test_the_owner_is_told_of_a_broadcast_that_raised_and_the_actor_lives_on(cluster: Cluster) -> None:
    owner = cluster.hosts.spawn_procs(name="owners").spawn("owner", Owner)
    workers = owner.spawn.call_one(cluster.hosts.spawn_procs({"gpus": 2})).get(20)
    owner.broadcast.call_one(fails_at=1).get(20)
    (failure,) = owner.wait_told.call_one().get(20)
    assert failure.kind == "endpoint_raised"
    assert failure.point == {"gpus": 1}
    assert failure.class_name == "Worker"
    assert "KeyError: 'rank 1'" in failure.cause
    assert "in work" in failure.traceback
    assert workers.read.call().get(20).to_list() == [1, 1]
    assert cluster.unhandled == []


def test_a_broadcast_to_the_dead_says_so(cluster: Cluster) -> None:
    from behaviour.actors import Where

    procs = cluster.hosts.spawn_procs()
    where, echo = procs.spawn("where", Where), procs.spawn("echo", Echo)
    waiting = procs.initialized
    waiting.get(20)
    pid = where.pid.call_one().get(20)
    cluster.kill(pid)
    with pytest.raises(Exception, match="SIGKILL"):
        echo.echo.options(timeout_s=20).call_one(1).get(20)
    with pytest.raises(MeshFailed, match="SIGKILL"):
        echo.echo.broadcast(1).get(20)
