"""Semantics 21: a stop refuses, drains, stops children, cleans up and ends, all under one deadline."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from behaviour.actors import Counter, Echo, Where
from behaviour.conftest import Cluster
from behaviour.test_spawning import wait_for_failures
from danaus import Actor, MeshStopped, ProcMesh, ReplyLost, endpoint, this_host, this_proc


def wait_for(condition: Callable[[], bool]) -> None:
    """Look again and again, since a file tells nobody of its changes."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


def wait_for_line(log: Path, text: str) -> None:
    wait_for(lambda: log.exists() and text in log.read_text())


class Tidy(Actor):
    """Writes down its life in a file."""

    def __init__(self, path: str, name: str = "tidy", *, trouble: str = "") -> None:
        self.path = path
        self.name = name
        self.trouble = trouble

    def note(self, text: str) -> None:
        with open(self.path, "a") as file:
            file.write(f"{self.name} {text}\n")

    @endpoint
    def work(self, number: int) -> int:
        self.note(f"works {number}")
        return number

    @endpoint
    def wait_for_file(self, path: str) -> None:
        self.note("waits")
        wait_for(lambda: os.path.exists(path))
        self.note("waited")

    @endpoint
    async def block(self) -> None:
        self.note("blocks")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.note("cancelled")
            raise

    @endpoint
    def hang(self) -> None:
        while True:
            threading.Event().wait(1)

    @endpoint
    def own(self, path: str) -> ProcMesh:
        procs = this_host().spawn_procs(name="child")
        procs.spawn("child", Tidy, path, "child").work.call_one(0).get(20)
        this_proc().spawn("neighbour", Tidy, path, "neighbour").work.call_one(0).get(20)
        return procs

    def __cleanup__(self, error: Exception | None) -> None:
        self.note(f"cleans up {error}")
        if self.trouble:
            raise RuntimeError(self.trouble)


class AsyncTidy(Tidy):
    async def __cleanup__(self, error: Exception | None) -> None:  # type: ignore[override]
        await asyncio.sleep(0)
        self.note(f"cleans up {error}")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.mark.parametrize("kind", [Tidy, AsyncTidy])
def test_a_stop_drains_what_is_queued_and_cleans_up(cluster: Cluster, log: Path, kind: type[Tidy]) -> None:
    procs = cluster.hosts.spawn_procs()
    tidy = procs.spawn("tidy", kind, str(log))
    calls = [tidy.work.call_one(number) for number in range(20)]
    tidy.stop().get(20)
    assert [call.get(20) for call in calls] == list(range(20))
    assert log.read_text().splitlines() == [*(f"tidy works {number}" for number in range(20)), "tidy cleans up None"]
    with pytest.raises(MeshStopped):
        tidy.work.call_one(1).get(20)
    assert procs.spawn("echo", Echo).echo.call_one(1).get(20) == 1


def test_a_stop_of_the_procs_drains_and_cleans_up_their_actors(cluster: Cluster, log: Path) -> None:
    procs = cluster.hosts.spawn_procs()
    tidy = procs.spawn("tidy", Tidy, str(log))
    call = tidy.work.call_one(1)
    procs.stop().get(20)
    assert call.get(20) == 1
    assert log.read_text().splitlines() == ["tidy works 1", "tidy cleans up None"]


def test_a_stop_now_does_not_drain_and_cancels_what_can_be_cancelled(
    cluster: Cluster, log: Path, tmp_path: Path
) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    tidy = procs.spawn("tidy", Tidy, str(log))
    waiting = tidy.slice(gpus=0).wait_for_file.call_one(str(tmp_path / "go"))
    queued = tidy.slice(gpus=0).work.call_one(1)
    wait_for_line(log, "waits")
    stopped = tidy.slice(gpus=0).stop(now=True)
    with pytest.raises(MeshStopped):
        queued.get(20)
    (tmp_path / "go").touch()
    waiting.get(20)
    stopped.get(20)
    assert log.read_text().splitlines() == ["tidy waits", "tidy waited", "tidy cleans up None"]
    log.unlink()
    blocked = tidy.slice(gpus=1).block.call_one()
    blocked_behind = tidy.slice(gpus=1).work.call_one(2)
    wait_for_line(log, "blocks")
    tidy.slice(gpus=1).stop(now=True).get(20)
    with pytest.raises(ReplyLost, match="stopped while it ran"):
        blocked.get(20)
    with pytest.raises(MeshStopped):
        blocked_behind.get(20)
    assert log.read_text().splitlines() == ["tidy blocks", "tidy cancelled", "tidy cleans up None"]


def test_children_are_stopped_before_the_owner_cleans_up(cluster: Cluster, log: Path) -> None:
    procs = cluster.hosts.spawn_procs()
    tidy = procs.spawn("tidy", Tidy, str(log))
    child = tidy.own.call_one(str(log)).get(20)
    tidy.stop().get(20)
    lines = log.read_text().splitlines()
    assert lines[:2] == ["child works 0", "neighbour works 0"]
    assert sorted(lines[2:4]) == ["child cleans up None", "neighbour cleans up None"]
    assert lines[4:] == ["tidy cleans up None"]
    with pytest.raises(MeshStopped):
        child.spawn("late", Echo)


def test_a_sync_endpoint_that_never_ends_is_killed_at_the_deadline(real_cluster: Cluster, log: Path) -> None:
    procs = real_cluster.hosts.spawn_procs()
    tidy = procs.spawn("tidy", Tidy, str(log))
    pid = procs.spawn("where", Where).os_pid.call_one().get(20)
    hanging = tidy.hang.call_one()
    begun = time.monotonic()
    procs.stop(0.2).get(20)
    assert time.monotonic() - begun < 5
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ReplyLost, match="stopped on purpose before it had answered"):
        hanging.get(20)
    assert real_cluster.unhandled == []


def test_the_stop_of_an_actor_that_never_ends_returns_at_its_deadline(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "log"
    tidy = cluster.hosts.spawn_procs().spawn("tidy", Tidy, str(log))
    waiting = tidy.wait_for_file.call_one(str(tmp_path / "go"))
    wait_for_line(log, "waits")
    tidy.stop(0.1).get(20)
    with pytest.raises(MeshStopped):
        tidy.work.call_one(1).get(20)
    (tmp_path / "go").touch()
    waiting.get(20)


def test_a_clean_up_that_raises_reaches_the_owner(cluster: Cluster, log: Path) -> None:
    tidy = cluster.hosts.spawn_procs().spawn("tidy", Tidy, str(log), trouble="the disk is full")
    tidy.work.call_one(1).get(20)
    tidy.stop().get(20)
    (failure,) = wait_for_failures(cluster, 1)
    assert failure.kind == "cleanup_raised"
    assert "RuntimeError: the disk is full" in failure.cause


def test_what_is_stopped_may_be_stopped_again_also_at_once(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    echo = procs.spawn("echo", Echo)
    stops = [echo.stop(), echo.stop(now=True), procs.stop(), procs.stop(now=True), echo.stop()]
    for stop in stops:
        stop.get(20)
    procs.stop().get(20)
    echo.stop().get(20)
    assert cluster.unhandled == []


def test_a_slice_is_stopped_and_the_rest_goes_on(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 3})
    counters, echo = procs.spawn("counter", Counter), procs.spawn("echo", Echo)
    counters.slice(gpus=0).stop().get(20)
    procs.slice(gpus=1).stop().get(20)
    with pytest.raises(MeshStopped):
        counters.slice(gpus=0).add.call_one(1).get(20)
    assert echo.slice(gpus=0).echo.call_one(1).get(20) == 1
    with pytest.raises(MeshStopped):
        echo.slice(gpus=1).echo.call_one(1).get(20)
    assert counters.slice(gpus=2).add.call_one(1).get(20) == 1
    assert cluster.unhandled == []


def test_a_with_block_stops_its_procs(cluster: Cluster) -> None:
    with cluster.hosts.spawn_procs() as procs:
        echo = procs.spawn("echo", Echo)
        assert echo.echo.call_one(1).get(20) == 1
    with pytest.raises(MeshStopped):
        echo.echo.call_one(1).get(20)

    async def main() -> None:
        async with cluster.hosts.spawn_procs() as procs:
            echo = procs.spawn("echo", Echo)
            assert await echo.echo.call_one(1) == 1
        with pytest.raises(MeshStopped):
            await echo.echo.call_one(1)

    asyncio.run(main())


def test_an_idle_stop_takes_next_to_no_time(cluster: Cluster) -> None:
    took_s = []
    for _ in range(3):
        procs = cluster.hosts.spawn_procs()
        procs.spawn("echo", Echo).echo.call_one(1).get(20)
        begun = time.monotonic()
        procs.stop().get(20)
        took_s.append(time.monotonic() - begun)
    assert min(took_s) < 1  # 50 ms on an idle machine; this one may be busy


def test_procs_that_are_still_starting_can_be_stopped(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    echo = procs.spawn("echo", Echo)
    call = echo.echo.call(1)
    procs.stop(now=True).get(20)
    with pytest.raises(Exception, match="stopped"):
        call.get(20)
    assert cluster.unhandled == []
