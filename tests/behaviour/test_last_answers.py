"""What an actor answered before it was stopped arrives, however large it is."""

from behaviour.conftest import Cluster
from danaus import Actor, endpoint

SIZE = 10_000_000
"""Far more than a socket takes at once."""


class Maker(Actor):
    """Makes large values."""

    @endpoint
    def make(self, fill: int) -> bytes:
        return bytes([fill]) * SIZE


def test_large_answers_arrive_although_their_procs_are_stopped(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    makers = procs.spawn("maker", Maker)
    calls = [makers.make.call(fill) for fill in (1, 2)]
    procs.stop().get(20)
    for fill, call in zip((1, 2), calls, strict=True):
        for value in call.get(20).to_list():
            assert len(value) == SIZE
            assert (value[0], value[-1]) == (fill, fill)
