"""The shortest story over every transport."""

from behaviour.actors import Counter, Where
from behaviour.conftest import Cluster


def test_a_mesh_of_procs_answers_and_stops(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs(per_host={"gpus": 2})
    counters = procs.spawn("counter", Counter, 10)
    assert counters.add.call(3).get(20).to_list() == [13, 13]
    assert counters.slice(gpus=1).add.call_one(1).get(20) == 14
    procs.stop().get(10)


def test_procs_of_a_real_host_are_processes_of_their_own(real_cluster: Cluster) -> None:
    where = real_cluster.hosts.spawn_procs(per_host={"gpus": 2}).spawn("where", Where)
    assert len(set(where.os_pid.call().get(20).to_list())) == 2
