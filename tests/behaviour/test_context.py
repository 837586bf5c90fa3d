"""Where the running code is: `context`, `current_rank`, `current_size`, `this_proc`, `this_host`."""

import threading

from behaviour.actors import Counter, Echo
from behaviour.conftest import Cluster
from danaus import Actor, Failure, context, current_rank, current_size, endpoint, this_host, this_proc

TRANSPORTS = ("in-memory", "unix")


def note_proc() -> None:
    """A bootstrap: it has a proc, and no actor."""
    here = context()
    assert here.actor_name == ""
    assert dict(here.point) == {}
    Placed.bootstrapped.append((here.proc_id, here.proc_mesh == this_proc()))


class Placed(Actor):
    """Tells where it is."""

    bootstrapped: list[tuple[str, bool]] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.built_at = dict(context().actor_point)

    @endpoint
    def where(self) -> dict[str, object]:
        here = context()
        return {
            "actor": here.actor_name,
            "class": here.class_name,
            "actor_point": dict(here.actor_point),
            "point": dict(here.point),
            "rank": here.rank,
            "size": current_size(),
            "built_at": self.built_at,
        }

    @endpoint
    def rank(self) -> int:
        return current_rank().rank

    @endpoint
    async def rank_async(self) -> int:
        return current_rank().rank

    @endpoint
    def proc_id(self) -> tuple[str, object, object]:
        return context().proc_id, context().proc_mesh, this_proc()

    @endpoint
    def proc_in_thread(self) -> object:
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.append(this_proc()))
        thread.start()
        thread.join()
        return seen[0] == this_proc()

    @endpoint
    def read_bootstrapped(self) -> list[tuple[str, bool]]:
        return Placed.bootstrapped

    @endpoint
    def spawn_on_this_host(self) -> list[int]:
        counters = this_host().spawn_procs({"gpus": 2}).spawn("counter", Counter, 3)
        return counters.read.call().get(20).to_list()


class Mourner(Actor):
    """Notes the context of its hooks."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @endpoint
    def own(self, procs: object) -> Echo:
        self.echo = procs.spawn("echo", Echo)  # type: ignore[attr-defined]
        return self.echo

    @endpoint
    def read(self) -> list[str]:
        if not self.seen:
            this_proc().spawn("nobody", Echo).echo.call_one(1).get(20)
        return self.seen

    def __supervise__(self, failure: Failure) -> bool:
        self.seen.append(context().actor_name)
        return True


def test_a_call_tells_the_actor_its_point_in_what_was_called(cluster: Cluster) -> None:
    placed = cluster.hosts.spawn_procs({"hosts": 2, "gpus": 3}).spawn("placed", Placed)
    called = placed.slice(hosts=1, gpus=[2, 0]).rename(gpus="workers")
    first, second = called.where.call().get(20).to_list()
    assert first == {
        "actor": "placed",
        "class": "Placed",
        "actor_point": {"hosts": 1, "gpus": 2},
        "point": {"workers": 0},
        "rank": 0,
        "size": {"workers": 2},
        "built_at": {"hosts": 1, "gpus": 2},
    }
    assert (second["point"], second["rank"], second["actor_point"]) == ({"workers": 1}, 1, {"hosts": 1, "gpus": 0})
    assert placed.rank.call().get(20).to_list() == list(range(6))
    assert placed.rank_async.call().get(20).to_list() == list(range(6))


def test_the_client_has_no_point(cluster: Cluster) -> None:
    assert context().actor_name == ""
    assert dict(current_rank()) == {}
    assert current_size() == {}
    assert len(this_proc()) == 1
    assert context().proc_mesh == this_proc()


def test_an_actor_knows_its_proc_and_the_mesh_of_it(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 3})
    placed = procs.slice(gpus=[1, 2]).spawn("placed", Placed)
    ids = set()
    for gpu in range(2):
        proc_id, mesh, own = placed.slice(gpus=gpu).proc_id.call_one().get(20)
        assert mesh == procs.slice(gpus=[1, 2])
        assert own == procs.slice(gpus=gpu + 1)
        ids.add(proc_id)
    assert len(ids) == 2


def test_this_proc_works_in_threads_and_in_the_bootstrap(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2}, bootstrap=note_proc)
    placed = procs.spawn("placed", Placed)
    assert all(placed.proc_in_thread.call().get(20).to_list()) or not cluster.is_real
    noted = [seen for seen, _ in placed.slice(gpus=1).read_bootstrapped.call_one().get(20)]
    assert placed.slice(gpus=1).proc_id.call_one().get(20)[0] in noted or not cluster.is_real


def test_an_actor_spawns_on_its_own_host(cluster: Cluster) -> None:
    placed = cluster.hosts.spawn_procs().spawn("placed", Placed)
    assert placed.spawn_on_this_host.call_one().get(20) == [3, 3]


def test_hooks_run_in_the_actors_context(cluster: Cluster) -> None:
    from behaviour.actors import Where

    mourner = cluster.hosts.spawn_procs(name="mourners").spawn("mourner", Mourner)
    procs = cluster.hosts.spawn_procs()
    mourner.own.call_one(procs).get(20)
    cluster.kill(procs.spawn("where", Where).pid.call_one().get(20))
    while not (seen := mourner.read.call_one().get(20)):
        continue
    assert seen == ["mourner"]
