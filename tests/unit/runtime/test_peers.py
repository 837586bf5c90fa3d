"""The edge of routing: links are opened and used, and nothing overtakes what is held, whatever thread it comes from."""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence

import pytest

from danaus.errors import ConfigError, Failure
from danaus.protocol.message import Message, ProcExited, Resolve, Resolved
from danaus.protocol.routing import AgentRef, Gone
from danaus.runtime.peers import Peers
from danaus.runtime.pickling import Pickled
from unit.runtime.hand_driven import HandDriven

AGENT = AgentRef("h1", "unix:/agent")
FAILURE = Failure(kind="proc_exited", mesh="m", rank=0, point={}, cause="killed")


class FakeLink:
    """Keeps what is sent."""

    def __init__(self, address: str) -> None:
        self.peer = ""
        self.address = address
        self.sent: list[Message] = []
        self.buffers: list[bytes] = []

    def send(
        self,
        message: Message,
        payload: bytes = b"",
        buffers: Sequence[bytes] = (),
        code: Mapping[str, bytes] | None = None,
    ) -> None:
        self.sent.append(message)
        self.buffers += buffers


class FakeLinks:
    """Opens links to all but `dead` addresses; the test says when one is open."""

    def __init__(self) -> None:
        self.dialed: list[FakeLink] = []
        self.dead: dict[str, Exception] = {}

    def connect(self, address: str) -> FakeLink:
        if address in self.dead:
            raise self.dead[address]
        self.dialed.append(FakeLink(address))
        return self.dialed[-1]


class Setting:
    """Peers, and everything round it."""

    def __init__(self) -> None:
        self.reactor = HandDriven()
        self.links = FakeLinks()
        self.gone: list[str] = []
        self.undelivered: list[tuple[str, list[Message]]] = []
        self.peers = Peers(
            self.links,  # type: ignore[arg-type]
            self.reactor,  # type: ignore[arg-type]
            on_gone=lambda proc, gone: self.gone.append(proc),
            on_undelivered=lambda proc, gone, messages: self.undelivered.append((proc, list(messages))),
            verdict_timeout_s=2.0,
        )

    def send(self, number: int, proc: str = "m.0") -> None:
        self.peers.send(proc, AGENT, Resolve(str(number)))

    def opened(self, link: FakeLink, peer: str) -> FakeLink:
        link.peer = peer
        self.peers.linked(link)  # type: ignore[arg-type]
        return link

    def linked(self, proc: str = "m.0") -> FakeLink:
        """A link that was sought because of a first message, number 0."""
        self.send(0, proc)
        self.reactor.run()
        self.peers.resolved(Resolved(proc, f"unix:/{proc}"))
        return self.opened(self.links.dialed[-1], proc)


@pytest.fixture
def setting() -> Iterator[Setting]:
    setting = Setting()
    yield setting
    setting.reactor.run()


def numbers(messages: Sequence[Message]) -> list[int]:
    return [int(message.proc) for message in messages if isinstance(message, Resolve)]


def test_the_first_message_asks_the_agent_and_then_goes_to_the_address_it_gives(setting: Setting) -> None:
    setting.send(1)
    setting.send(2)
    setting.reactor.run()
    [to_agent] = setting.links.dialed
    assert (to_agent.address, to_agent.sent) == ("unix:/agent", [Resolve("m.0")])
    setting.peers.resolved(Resolved("m.0", "unix:/m.0"))
    _, to_proc = setting.links.dialed
    assert (to_proc.address, to_proc.sent) == ("unix:/m.0", [])
    setting.opened(to_proc, "m.0")
    setting.send(3)
    assert numbers(to_proc.sent) == [1, 2, 3]


def test_a_link_to_the_agent_that_is_opening_already_is_used(setting: Setting) -> None:
    parent = FakeLink("agent")
    setting.peers.opening(AGENT, parent)  # type: ignore[arg-type]
    setting.send(1)
    setting.reactor.run()
    setting.peers.send_to_agent(AGENT, Resolve("m.1"))
    assert parent.sent == [Resolve("m.0"), Resolve("m.1")]
    assert setting.links.dialed == []


def test_what_is_held_is_a_copy_that_the_sender_cannot_change(setting: Setting) -> None:
    buffer = bytearray(b"as it was sent")
    setting.peers.send("m.0", AGENT, Resolve("0"), Pickled(b"", [buffer]))
    buffer[:] = b"overwritten...".ljust(len(buffer))
    setting.reactor.run()
    setting.peers.resolved(Resolved("m.0", "unix:/m.0"))
    assert setting.opened(setting.links.dialed[-1], "m.0").buffers == [b"as it was sent"]


def test_an_agent_that_cannot_be_reached_takes_its_procs_with_it(setting: Setting) -> None:
    setting.links.dead["unix:/agent"] = ConnectionRefusedError("nobody there")
    setting.peers.know("m.1", AGENT)
    setting.send(1)
    setting.reactor.run()
    assert sorted(setting.gone) == ["m.0", "m.1"]
    assert [(proc, numbers(messages)) for proc, messages in setting.undelivered] == [("m.0", [1])]
    gone = setting.peers.gone("m.1")
    assert gone is not None
    assert gone.failure.kind == "host_lost"


def test_the_link_to_an_agent_that_breaks_or_never_opens_takes_its_procs_with_it(setting: Setting) -> None:
    setting.send(1)
    setting.reactor.run()
    [to_agent] = setting.links.dialed
    setting.peers.connect_failed(to_agent, ConnectionResetError("cut"))  # type: ignore[arg-type]
    assert setting.gone == ["m.0"]
    setting.send(2, "m.1")
    setting.reactor.run()
    again = setting.opened(setting.links.dialed[-1], "h1")
    assert again is not to_agent
    setting.peers.lost(again, ConnectionResetError("cut"))  # type: ignore[arg-type]
    assert setting.gone == ["m.0", "m.1"]


@pytest.mark.parametrize("error", [ConnectionRefusedError("nobody there"), ConfigError("no such transport")])
def test_a_proc_that_cannot_be_reached_is_gone_when_its_agent_does_not_say_why(
    setting: Setting, error: Exception
) -> None:
    setting.links.dead["unix:/m.0"] = error
    setting.send(1)
    setting.reactor.run()
    setting.peers.resolved(Resolved("m.0", "unix:/m.0"))
    assert setting.links.dialed[0].sent == [Resolve("m.0"), Resolve("m.0")]
    setting.reactor.advance(1.9)
    assert setting.gone == []
    setting.reactor.advance(0.1)
    assert setting.gone == ["m.0"]
    assert numbers(setting.undelivered[0][1]) == [1]


def test_somebody_else_who_answers_at_the_address_gets_nothing(setting: Setting) -> None:
    setting.send(1)
    setting.reactor.run()
    setting.peers.resolved(Resolved("m.0", "unix:/m.0"))
    stranger = setting.opened(setting.links.dialed[-1], "m.7")
    assert stranger.sent == []
    setting.reactor.advance(2.0)
    assert setting.gone == ["m.0"]


def test_the_verdict_of_the_agent_stops_the_clock(setting: Setting) -> None:
    link = setting.linked()
    setting.peers.lost(link, ConnectionResetError("cut"))  # type: ignore[arg-type]
    assert setting.reactor.num_timers == 1
    setting.peers.exited(ProcExited("m.0", False, FAILURE))
    assert setting.gone == ["m.0"]
    assert setting.peers.gone("m.0") == Gone(FAILURE, planned=False)
    assert setting.reactor.num_timers == 0


def test_what_is_sent_after_the_link_broke_is_not_lost_with_it(setting: Setting) -> None:
    link = setting.linked()
    setting.send(1)
    setting.peers.lost(link, ConnectionResetError("cut"))  # type: ignore[arg-type]
    setting.send(2)
    assert numbers(link.sent) == [0, 1]
    setting.peers.exited(ProcExited("m.0", False, FAILURE))
    assert numbers(setting.undelivered[0][1]) == [2]


def test_the_last_words_of_a_proc_come_before_its_end(setting: Setting) -> None:
    link = setting.linked()
    setting.peers.exited(ProcExited("m.0", True, FAILURE))
    assert setting.gone == []
    assert setting.peers.gone("m.0") is not None
    setting.peers.lost(link, ConnectionResetError("end of stream"))  # type: ignore[arg-type]
    assert setting.gone == ["m.0"]


def test_what_is_sent_to_a_dead_proc_is_told_on_the_driving_thread_and_not_from_within_the_send(
    setting: Setting,
) -> None:
    setting.peers.exited(ProcExited("m.0", False, FAILURE))
    setting.send(1)
    assert setting.undelivered == []
    setting.reactor.run()
    assert numbers(setting.undelivered[0][1]) == [1]


def test_a_callback_may_send_to_the_proc_it_is_told_of(setting: Setting) -> None:
    setting.peers._on_gone = lambda proc, gone: setting.send(9)
    setting.peers.exited(ProcExited("m.0", False, FAILURE))
    setting.reactor.run()
    assert numbers(setting.undelivered[0][1]) == [9]


def test_two_deaths_are_waited_for_by_one_timer_at_a_time(setting: Setting) -> None:
    first, second = setting.linked("m.0"), setting.linked("m.1")
    setting.peers.lost(first, ConnectionResetError("cut"))  # type: ignore[arg-type]
    setting.reactor.advance(1.0)
    setting.peers.lost(second, ConnectionResetError("cut"))  # type: ignore[arg-type]
    assert setting.reactor.num_timers == 1
    setting.reactor.advance(1.0)
    assert setting.gone == ["m.0"]
    setting.reactor.advance(1.0)
    assert setting.gone == ["m.0", "m.1"]
    assert setting.reactor.num_timers == 0


def test_a_message_sent_while_the_held_ones_are_sent_comes_behind_them(setting: Setting) -> None:
    setting.send(1)
    setting.send(2)
    setting.reactor.run()
    setting.peers.resolved(Resolved("m.0", "unix:/m.0"))
    link = setting.links.dialed[-1]
    plain = link.send
    threads: list[threading.Thread] = []

    def send(message: Message, *rest: object) -> None:
        if not threads:  # another thread has something to say just as the first of the held ones is sent
            threads.append(threading.Thread(target=setting.send, args=(3,)))
            threads[0].start()
            threads[0].join(0.005)
        plain(message)

    link.send = send  # type: ignore[method-assign,assignment]
    setting.opened(link, "m.0")
    threads[0].join()
    assert numbers(link.sent) == [1, 2, 3]


def test_threads_that_send_while_the_link_opens_keep_their_order_and_lose_nothing(setting: Setting) -> None:
    num_threads, count = 4, 200
    begun = threading.Barrier(num_threads + 1)

    def talk(thread: int) -> None:
        begun.wait()
        for number in range(count):
            setting.send(thread * count + number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=talk, args=(thread,)) for thread in range(num_threads)]
        for thread in threads:
            thread.start()
        begun.wait()
        while not setting.links.dialed:
            setting.reactor.run()
        setting.peers.resolved(Resolved("m.0", "unix:/m.0"))
        link = setting.opened(setting.links.dialed[-1], "m.0")
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    sent = numbers(link.sent)
    assert sorted(sent) == list(range(num_threads * count))
    for thread_number in range(num_threads):
        mine = [number for number in sent if number // count == thread_number]
        assert mine == sorted(mine)
