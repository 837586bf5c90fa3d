"""Semantics 1 to 3: order from one sender to one actor, one message at a time, each at most once."""

import threading

import pytest

from behaviour.conftest import Cluster
from danaus import Actor, CallTimeout, DeliveryError, ReplyLost, endpoint


class Log(Actor):
    """Writes down what it gets, and who else was inside."""

    def __init__(self) -> None:
        self.entries: list[object] = []
        self.inside = 0
        self.most_inside = 0
        self.gate = threading.Event()

    @endpoint
    def append(self, entry: object) -> int:
        self._enter()
        self.entries.append(entry)
        self.inside -= 1
        return len(self.entries)

    @endpoint
    async def append_async(self, entry: object) -> int:
        import asyncio

        self._enter()
        await asyncio.sleep(0)
        self.entries.append(entry)
        await asyncio.sleep(0)
        self.inside -= 1
        return len(self.entries)

    @endpoint
    def read(self) -> list[object]:
        return self.entries

    @endpoint
    def read_most_inside(self) -> int:
        return self.most_inside

    def _enter(self) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)


class Sender(Actor):
    """Sends from its own place."""

    def __init__(self, log: Log) -> None:
        self.log = log

    @endpoint
    def send(self, entries: list[object]) -> None:
        for entry in entries:
            self.log.append.broadcast(entry)
        self.log.read.call_one().get(20)

    @endpoint
    async def send_async(self, entries: list[object]) -> None:
        for entry in entries:
            self.log.append.broadcast(entry)
        await self.log.read.call_one()


def test_messages_from_one_sender_are_handled_in_the_order_sent(cluster: Cluster) -> None:
    log = cluster.hosts.spawn_procs().spawn("log", Log)
    calls = [log.append.call_one(number) for number in range(300)]
    assert [call.get(20) for call in calls] == list(range(1, 301))
    assert log.read.call_one().get(20) == list(range(300))


def test_the_order_holds_across_adverbs_slices_and_kinds_of_endpoint(cluster: Cluster) -> None:
    logs = cluster.hosts.spawn_procs({"gpus": 2}).spawn("log", Log)
    for number in range(0, 60, 6):
        logs.append.call(number)
        logs.append.broadcast(number + 1)
        logs.slice(gpus=0).append_async.call_one(number + 2)
        logs.slice(gpus=[0]).append.call(number + 3)
        logs.flatten("all").append_async.call(number + 4)
        logs.slice(gpus=slice(0, 1)).append.options(timeout_s=30).broadcast(number + 5)
    assert logs.slice(gpus=0).read.call_one().get(20) == list(range(60))


def test_the_order_holds_from_many_threads_of_one_client_as_far_as_each_sees_it(cluster: Cluster) -> None:
    log = cluster.hosts.spawn_procs().spawn("log", Log)

    def send(thread: int) -> None:
        for number in range(50):
            log.append.broadcast((thread, number))

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    entries = log.read.call_one().get(20)
    assert len(entries) == 200
    for thread in range(4):
        assert [entry for entry in entries if entry[0] == thread] == [(thread, number) for number in range(50)]


@pytest.mark.parametrize("kind", ["send", "send_async"])
def test_messages_from_one_actor_are_handled_in_the_order_sent(cluster: Cluster, kind: str) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    log = procs.slice(gpus=0).spawn("log", Log)
    senders = procs.spawn("sender", Sender, log)  # one beside the log in its proc, one elsewhere
    calls = [getattr(senders.slice(gpus=gpu), kind).call_one([(gpu, n) for n in range(100)]) for gpu in range(2)]
    for call in calls:
        call.get(20)
    entries = log.read.call_one().get(20)
    for gpu in range(2):
        assert [entry for entry in entries if entry[0] == gpu] == [(gpu, number) for number in range(100)]


def test_an_actor_handles_one_message_at_a_time(cluster: Cluster) -> None:
    log = cluster.hosts.spawn_procs().spawn("log", Log)
    for number in range(50):
        log.append_async.broadcast(number)
        log.append.broadcast(number)
    assert log.read_most_inside.call_one().get(20) == 1


class Gate(Actor):
    """Is busy until told."""

    def __init__(self) -> None:
        self.handled: list[int] = []

    @endpoint
    async def block(self) -> None:
        import asyncio

        await asyncio.get_running_loop().create_future()

    @endpoint
    def handle(self, number: int) -> int:
        self.handled.append(number)
        return number

    @endpoint
    def read(self) -> list[int]:
        return self.handled


def test_expired_and_cancelled_messages_hold_up_nothing(cluster: Cluster) -> None:
    gate = cluster.hosts.spawn_procs().spawn("gate", Gate)
    calls = [gate.handle.call_one(number) for number in range(5)]
    for number in range(5, 200, 3):
        gate.handle.call_one(number).cancel()
        expired = gate.handle.options(timeout_s=1e-6).call_one(number + 1)
        assert gate.handle.call_one(number + 2).get(20) == number + 2
        with pytest.raises(CallTimeout):
            expired.get(20)
    assert [call.get(20) for call in calls] == list(range(5))
    handled = gate.read.call_one().get(20)
    assert handled == sorted(set(handled))


def test_a_message_to_what_is_dead_was_never_delivered_and_one_that_may_have_run_says_so(cluster: Cluster) -> None:
    from behaviour.actors import Where

    procs = cluster.hosts.spawn_procs()
    where, gate = procs.spawn("where", Where), procs.spawn("gate", Gate)
    pid = where.pid.call_one().get(20)
    in_flight = gate.block.call_one()
    cluster.kill(pid)
    with pytest.raises(ReplyLost):
        in_flight.get(20)
    with pytest.raises(DeliveryError):
        gate.handle.call_one(1).get(20)
