"""What a link may do to messages: late, twice, overtaking each other, lost, or cut by a death at any of them."""

import pytest

from behaviour.actors import Counter, Echo
from danaus import Actor, CallTimeout, ReplyLost, Settings, endpoint
from danaus.protocol.message import Cast, Message, Reply
from danaus.testing.faults import FaultPlan
from danaus.testing.hosts import InMemoryHosts


class Log(Actor):
    """Writes down what it gets."""

    def __init__(self) -> None:
        self.entries: list[int] = []

    @endpoint
    def append(self, entry: int) -> int:
        self.entries.append(entry)
        return entry

    @endpoint
    def read(self) -> list[int]:
        return self.entries


def is_append(message: Message) -> bool:
    return isinstance(message, Cast) and message.endpoint == "append"


@pytest.mark.parametrize("seed", range(5))
def test_messages_that_overtake_each_other_and_come_twice_are_handled_in_order_and_once(seed: int) -> None:
    plan = FaultPlan[Message](seed=seed).reorder(0.03, matching=is_append).double(matching=is_append, share=0.3)
    with InMemoryHosts(1, faults=plan) as memory:
        log = memory.hosts.spawn_procs().spawn("log", Log)
        calls = [log.append.call_one(entry) for entry in range(100)]
        assert [call.get(20) for call in calls] == list(range(100))
        assert log.read.call_one().get(20) == list(range(100))


def test_a_reply_that_comes_twice_counts_once() -> None:
    plan = FaultPlan[Message]().double(matching=lambda message: isinstance(message, Reply))
    with InMemoryHosts(1, faults=plan) as memory:
        counters = memory.hosts.spawn_procs({"gpus": 3}).spawn("counter", Counter)
        assert [counters.add.call(1).get(20).to_list() for _ in range(3)] == [[1] * 3, [2] * 3, [3] * 3]


def test_a_lost_message_ends_by_its_deadline_and_holds_up_nothing_behind_it() -> None:
    plan = FaultPlan[Message]().drop(nth=1, matching=is_append)
    with InMemoryHosts(1, faults=plan) as memory:
        log = memory.hosts.spawn_procs().spawn("log", Log)
        log.initialized.get(20)
        lost = log.append.options(timeout_s=0.2).call_one(1)
        behind = log.append.call_one(2)
        with pytest.raises(CallTimeout):
            lost.get(20)
        assert behind.get(20) == 2
        assert log.read.call_one().get(20) == [2]


def test_a_cancel_that_overtakes_its_message_is_remembered() -> None:
    plan = FaultPlan[Message]().delay(0.3, nth=1, matching=is_append)
    with InMemoryHosts(1, faults=plan) as memory:
        log = memory.hosts.spawn_procs().spawn("log", Log)
        log.initialized.get(20)
        cancelled = log.append.call_one(1)
        assert cancelled.cancel()
        assert log.append.call_one(2).get(20) == 2
        assert log.append.call_one(3).get(20) == 3
        assert log.read.call_one().get(20) == [2, 3]


@pytest.mark.parametrize("after_frames", range(1, 12))
def test_a_proc_that_dies_at_any_message_ends_every_call(after_frames: int) -> None:
    plan = FaultPlan[Message]().kill("workers.0", after_frames=after_frames)
    with InMemoryHosts(1, faults=plan) as memory:
        memory.client.root.hook = lambda failure: None
        workers = memory.hosts.spawn_procs({"gpus": 2}, name="workers").spawn("echo", Echo)
        calls = [workers.echo.options(return_exceptions=True).call(number) for number in range(20)]
        for number, call in enumerate(calls):
            dead, alive = call.get(20).to_list()
            assert alive == number
            assert dead == number or "SIGKILL" in str(dead)


def test_a_frozen_proc_lets_others_answer_and_goes_on_when_thawed() -> None:
    with InMemoryHosts(1) as memory:
        workers = memory.hosts.spawn_procs({"gpus": 2}, name="workers").spawn("counter", Counter)
        workers.read.call().get(20)
        memory.freeze("workers.0")
        late = workers.slice(gpus=0).add.call_one(1)
        with pytest.raises(CallTimeout):
            workers.slice(gpus=0).add.options(timeout_s=0.1).call_one(10).get(20)
        assert workers.slice(gpus=1).add.call_one(1).get(20) == 1
        assert not late.done()
        memory.thaw("workers.0")
        assert late.get(20) == 1


def test_a_lost_link_without_a_verdict_ends_the_calls_that_waited_on_it() -> None:
    with InMemoryHosts(1, settings=Settings(verdict_timeout_s=0.2)) as memory:
        memory.client.root.hook = lambda failure: None
        echo = memory.hosts.spawn_procs(name="workers").spawn("echo", Echo)
        assert echo.echo.call_one(1).get(20) == 1
        memory.freeze("workers.0")
        waiting = echo.echo.call_one(2)
        proc = next(peer for peer in memory.client.links if "workers" in peer.address or peer.peer.startswith("p"))
        memory.client.reactor.post(lambda: proc.close(ConnectionResetError("the cable was cut")))
        with pytest.raises(ReplyLost):
            waiting.get(20)
