"""Meshes and actors as arguments and results, also while they are still starting."""

import pytest

from behaviour.actors import Counter, Echo
from behaviour.conftest import Cluster
from danaus import Actor, ActorMesh, HostMesh, ProcMesh, endpoint, this_host, this_proc


class Keeper(Actor):
    """Holds what others made, and makes some."""

    def __init__(self, counters: Counter | None = None) -> None:
        self.counters = counters

    @endpoint
    def add(self, amount: int) -> list[int]:
        assert self.counters is not None
        return self.counters.add.call(amount).get(20).to_list()

    @endpoint
    async def add_to(self, counters: Counter, amount: int) -> list[int]:
        return (await counters.add.call(amount)).to_list()

    @endpoint
    def spawn_on(self, procs: ProcMesh) -> Counter:
        return procs.spawn("counter", Counter, 100)

    @endpoint
    def spawn_procs(self, hosts: HostMesh | None = None) -> tuple[ProcMesh, Counter]:
        procs = (hosts or this_host()).spawn_procs({"gpus": 2}, name="grandchildren")
        return procs, procs.spawn("counter", Counter, 1000)

    @endpoint
    def spawn_here(self) -> Counter:
        return this_proc().spawn("counter", Counter, 7)

    @endpoint
    def same(self, first: object, second: object) -> bool:
        return first == second and hash(first) == hash(second)


def test_an_actor_mesh_is_an_argument_of_a_call_and_of_a_constructor(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    counters = procs.spawn("counter", Counter)
    keeper = procs.slice(gpus=0).spawn("keeper", Keeper, counters.slice(gpus=[1]))
    assert keeper.add.call_one(5).get(20) == [5]
    assert keeper.add_to.call_one(counters, 1).get(20) == [1, 6]


def test_meshes_are_arguments_while_they_are_still_starting(cluster: Cluster) -> None:
    keeper = cluster.hosts.spawn_procs(name="keepers").spawn("keeper", Keeper)
    procs = cluster.hosts.spawn_procs({"gpus": 2}, name="counters")
    counters = procs.spawn("counter", Counter, 10)
    assert keeper.add_to.call_one(counters, 1).get(20) == [11, 11]


def test_meshes_are_results_and_stay_alive_as_long_as_their_owner(cluster: Cluster) -> None:
    keeper = cluster.hosts.spawn_procs(name="keepers").spawn("keeper", Keeper)
    procs = cluster.hosts.spawn_procs({"gpus": 2}, name="counters")
    spawned = keeper.spawn_on.call_one(procs).get(20)
    assert isinstance(spawned, ActorMesh)
    assert spawned.add.call(1).get(20).to_list() == [101, 101]


def test_an_actor_spawns_procs_and_actors_and_gives_them_back(cluster: Cluster) -> None:
    keeper = cluster.hosts.spawn_procs().spawn("keeper", Keeper)
    grandchildren, counters = keeper.spawn_procs.call_one().get(20)
    assert counters.slice(gpus=1).add.call_one(1).get(20) == 1001
    assert grandchildren.spawn("echo", Echo).echo.call("hi").get(20).to_list() == ["hi", "hi"]
    _, on_hosts = keeper.spawn_procs.call_one(cluster.hosts).get(20)
    assert on_hosts.add.call(1).get(20).to_list() == [1001, 1001]


def test_an_actor_spawns_on_its_own_proc(cluster: Cluster) -> None:
    keeper = cluster.hosts.spawn_procs({"gpus": 2}).spawn("keeper", Keeper)
    assert keeper.slice(gpus=1).spawn_here.call_one().get(20).add.call_one(1).get(20) == 8


def test_a_mesh_that_travelled_equals_the_one_sent(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"hosts": 2, "gpus": 2})
    echo, keeper = procs.spawn("echo", Echo), procs.slice(hosts=0, gpus=0).spawn("keeper", Keeper)
    for mesh in (
        cluster.hosts,
        procs,
        procs.slice(gpus=1),
        echo,
        echo.slice(hosts=0, gpus=slice(1, 2)),
        echo.flatten("all").slice(all=[3, 0]),
        echo.rename(gpus="workers").split(workers={"a": 1, "b": 2}),
    ):
        back = echo.slice(hosts=1, gpus=1).echo.call_one(mesh).get(20)
        assert back == mesh
        assert back.extent == mesh.extent
        assert keeper.same.call_one(mesh, back).get(20)


def test_an_order_of_ranks_survives_the_way(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 3})
    counters = procs.spawn("counter", Counter)
    for gpu in range(3):
        counters.slice(gpus=gpu).add.call_one(gpu * 10).get(20)
    echo = procs.slice(gpus=0).spawn("echo", Echo)
    turned = echo.echo.call_one(counters.slice(gpus=[2, 0])).get(20)
    assert turned.read.call().get(20).to_list() == [20, 0]


def test_an_actor_spawned_into_the_clients_own_process_answers_and_calls_others(cluster: Cluster) -> None:
    counters = cluster.hosts.spawn_procs({"gpus": 2}).spawn("counter", Counter)
    keeper = this_proc().spawn("keeper", Keeper, counters)
    assert keeper.add.call_one(1).get(20) == [1, 1]
    back = cluster.hosts.spawn_procs().spawn("keeper", Keeper, this_proc().spawn("counter", Counter, 5))
    assert back.add.call_one(1).get(20) == [6]
    keeper.stop().get(20)


def test_a_future_stays_in_its_process(cluster: Cluster) -> None:
    echo = cluster.hosts.spawn_procs().spawn("echo", Echo)
    with pytest.raises(TypeError, match="send its value"):
        echo.echo.call_one(echo.echo.call_one(1))
