"""Semantics 20: an owner is told of each failure once, also while it waits; what it does not handle goes on up."""

import asyncio
import sys

import pytest

from behaviour.actors import Counter, Echo, Where
from behaviour.conftest import Cluster
from behaviour.test_spawning import wait_for_failures
from danaus import Actor, Failure, MeshFailed, ProcMesh, ReplyLost, endpoint, this_host, this_proc

TRANSPORTS = ("in-memory", "unix")


class Supervisor(Actor):
    """Owns an echo on some procs, and answers as it was told to."""

    def __init__(self, answer: object = True) -> None:
        self.answer = answer
        self.told: list[Failure] = []

    @endpoint
    def own(self, num_procs: int = 1) -> tuple[ProcMesh, Echo, list[int]]:
        procs = this_host().spawn_procs({"gpus": num_procs}, name="owned")
        return procs, procs.spawn("echo", Echo), procs.spawn("where", Where).pid.call().get(20).to_list()

    @endpoint
    def spawn_on(self, procs: ProcMesh) -> Echo:
        return procs.spawn("echo", Echo)

    @endpoint
    def read(self) -> list[Failure]:
        return self.told

    @endpoint
    def wait_in_get(self, silent: "Silent") -> str:
        try:
            silent.block.call_one().get(20)
        except (ReplyLost, MeshFailed) as error:  # the latter if the call had not left yet
            return str(error)
        return "no failure"

    @endpoint
    async def wait_in_await(self, silent: "Silent") -> str:
        try:
            await silent.block.call_one()
        except (ReplyLost, MeshFailed) as error:  # the latter if the call had not left yet
            return str(error)
        return "no failure"

    def __supervise__(self, failure: Failure) -> object:
        self.told.append(failure)
        if self.answer == "raise":
            raise RuntimeError("the supervisor broke")
        return self.answer


class AsyncSupervisor(Supervisor):
    async def __supervise__(self, failure: Failure) -> object:  # type: ignore[override]
        await asyncio.sleep(0)
        self.told.append(failure)
        return self.answer


class TellingSupervisor(Supervisor):
    """Tells another actor as soon as it is told."""

    def __init__(self, bell: "Bell") -> None:
        super().__init__(True)
        self.bell = bell

    def __supervise__(self, failure: Failure) -> bool:
        self.bell.ring.broadcast(failure.cause)
        return True


class Bell(Actor):
    def __init__(self) -> None:
        self.rung: list[str] = []
        self.heard = asyncio.Event()

    @endpoint
    async def ring(self, text: str) -> None:
        self.rung.append(text)

    @endpoint
    def read(self) -> list[str]:
        return self.rung


class Silent(Actor):
    @endpoint
    async def block(self) -> None:
        await asyncio.get_running_loop().create_future()


class Grandparent(Supervisor):
    """Owns a supervisor on other procs."""

    @endpoint
    def own_supervisor(self, procs: ProcMesh, answer: object) -> Supervisor:
        return procs.spawn("parent", Supervisor, answer)


class Leaver(Actor):
    @endpoint
    def leave(self) -> None:
        sys.exit(4)


def wait_told(supervisor: Supervisor, count: int = 1) -> list[Failure]:
    """What it was told, once there are so many."""
    for _ in range(20_000):
        told = supervisor.read.call_one().get(20)
        if len(told) >= count:
            return told
    raise AssertionError(f"told of {told} only")


def wait_rung(bell: Bell) -> list[str]:
    for _ in range(20_000):
        rung = bell.read.call_one().get(20)
        if rung:
            return rung
    raise AssertionError("the bell was never rung")


@pytest.mark.parametrize("kind", [Supervisor, AsyncSupervisor])
def test_a_supervisor_that_returns_true_has_handled_it(cluster: Cluster, kind: type[Supervisor]) -> None:
    supervisor = cluster.hosts.spawn_procs(name="owners").spawn("supervisor", kind)
    _, echo, (pid,) = supervisor.own.call_one().get(20)
    assert echo.slice(gpus=0).echo.call_one(1).get(20) == 1
    cluster.kill(pid)
    (failure,) = wait_told(supervisor)
    assert (failure.kind, failure.mesh, failure.chain) == ("proc_exited", "owned", ())
    assert "SIGKILL" in failure.cause
    assert len(supervisor.read.call_one().get(20)) == 1
    assert cluster.unhandled == []


def test_each_dead_rank_is_told_once(cluster: Cluster) -> None:
    supervisor = cluster.hosts.spawn_procs(name="owners").spawn("supervisor", Supervisor)
    _, echo, pids = supervisor.own.call_one(3).get(20)
    for pid in pids[:2]:
        cluster.kill(pid)
    wait_told(supervisor, 2)
    for _ in range(3):
        for gpu in range(2):
            with pytest.raises((ReplyLost, MeshFailed)):
                echo.slice(gpus=gpu).echo.call_one(1).get(20)
    assert echo.slice(gpus=2).echo.call_one(1).get(20) == 1
    told = supervisor.read.call_one().get(20)
    assert sorted(failure.point["gpus"] for failure in told) == [0, 1]


@pytest.mark.parametrize("wait", ["wait_in_get", "wait_in_await"])
def test_supervision_runs_while_an_endpoint_waits(cluster: Cluster, wait: str) -> None:
    owners = cluster.hosts.spawn_procs(name="owners")
    others = cluster.hosts.spawn_procs(name="others")
    bell, silent = owners.spawn("bell", Bell), others.spawn("silent", Silent)
    supervisor = owners.spawn("supervisor", TellingSupervisor, bell)
    _, _, (pid,) = supervisor.own.call_one().get(20)
    waiting = getattr(supervisor, wait).call_one(silent)
    cluster.kill(pid)
    assert "SIGKILL" in wait_rung(bell)[0]
    assert not waiting.done()
    cluster.kill(others.spawn("where", Where).pid.call_one().get(20))
    assert "SIGKILL" in waiting.get(20)


@pytest.mark.parametrize("answer", [False, 1])
def test_only_true_means_handled(cluster: Cluster, answer: object) -> None:
    supervisor = cluster.hosts.spawn_procs(name="owners").spawn("supervisor", Supervisor, answer)
    _, _, (pid,) = supervisor.own.call_one().get(20)
    cluster.kill(pid)
    (failure,) = wait_for_failures(cluster, 1)
    assert (failure.mesh, failure.chain) == ("owned", ("supervisor",))
    assert len(supervisor.read.call_one().get(20)) == 1  # it lives on


def test_a_supervisor_that_raises_has_not_handled_it_and_its_own_trouble_is_told_as_well(cluster: Cluster) -> None:
    supervisor = cluster.hosts.spawn_procs(name="owners").spawn("supervisor", Supervisor, "raise")
    _, _, (pid,) = supervisor.own.call_one().get(20)
    cluster.kill(pid)
    failures = wait_for_failures(cluster, 2)
    assert sorted(failure.kind for failure in failures) == ["proc_exited", "supervise_raised"]
    assert "the supervisor broke" in next(each.cause for each in failures if each.kind == "supervise_raised")
    assert len(supervisor.read.call_one().get(20)) == 1


def test_an_unhandled_failure_climbs_the_tree_of_owners(cluster: Cluster) -> None:
    grandparent = cluster.hosts.spawn_procs(name="grandparents").spawn("grandparent", Grandparent)
    parents = cluster.hosts.spawn_procs(name="parents")
    parent = grandparent.own_supervisor.call_one(parents, False).get(20)
    _, _, (pid,) = parent.own.call_one().get(20)
    cluster.kill(pid)
    (failure,) = wait_told(grandparent)
    assert (failure.mesh, failure.chain) == ("owned", ("parent",))


def test_who_owns_actors_on_the_procs_of_another_is_told_and_so_is_the_other(cluster: Cluster) -> None:
    first, second = (cluster.hosts.spawn_procs(name="owners").spawn(name, Supervisor) for name in ("first", "second"))
    procs, _, (pid,) = first.own.call_one().get(20)
    second.spawn_on.call_one(procs).get(20)
    cluster.kill(pid)
    assert [wait_told(each)[0].mesh for each in (first, second)] == ["owned", "owned"]


def test_what_is_stopped_on_purpose_is_no_failure(cluster: Cluster) -> None:
    supervisor = cluster.hosts.spawn_procs(name="owners").spawn("supervisor", Supervisor)
    procs, echo, _ = supervisor.own.call_one().get(20)
    echo.slice(gpus=0).echo.call_one(1).get(20)
    procs.stop().get(20)
    assert supervisor.read.call_one().get(20) == []
    assert cluster.unhandled == []


def test_an_actor_that_exits_is_dead_and_its_proc_lives_on(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    leaver, echo = procs.spawn("leaver", Leaver), procs.spawn("echo", Echo)
    with pytest.raises(ReplyLost, match="SystemExit: 4"):
        leaver.leave.call_one().get(20)
    with pytest.raises(MeshFailed, match="SystemExit: 4"):
        leaver.leave.call_one().get(20)
    assert echo.echo.call_one(1).get(20) == 1
    assert procs.spawn("counter", Counter).add.call_one(1).get(20) == 1


class Untidy(Actor):
    """Breaks when it cleans up."""

    @endpoint
    def read(self) -> int:
        return 1

    def __cleanup__(self, error: Exception | None) -> None:
        raise RuntimeError("the disk is full")


class Keeper(Actor):
    """Owns an untidy one, and handles nothing."""

    @endpoint
    def keep(self) -> int:
        return this_proc().spawn("untidy", Untidy).read.call_one().get(20)


def test_a_failure_that_finds_its_owner_ended_goes_on_up(cluster: Cluster) -> None:
    keeper = cluster.hosts.spawn_procs().spawn("keeper", Keeper)
    assert keeper.keep.call_one().get(20) == 1
    keeper.stop().get(20)
    (failure,) = wait_for_failures(cluster, 1)
    assert (failure.kind, failure.mesh, failure.chain) == ("cleanup_raised", "untidy", ("keeper",))
