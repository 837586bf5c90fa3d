"""How procs are found, what is held for them meanwhile, and when they are gone."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.errors import Failure
from danaus.protocol.routing import (
    AgentRef,
    Bury,
    Connect,
    Effect,
    Gone,
    HandBack,
    Open,
    Routing,
    Seek,
    Send,
    Shut,
)

AGENT = AgentRef("h1", "unix:/agent")
OTHER_AGENT = AgentRef("h2", "unix:/other")
CUT = ConnectionResetError("the cable was cut")


def gone(cause: str = "killed", *, planned: bool = False) -> Gone:
    return Gone(Failure(kind="proc_exited", mesh="m", rank=0, point={}, cause=cause), planned)


def make(*, verdict_timeout_s: float = 2.0) -> Routing[str, str]:
    return Routing(verdict_timeout_s=verdict_timeout_s)


def linked(*, held: Sequence[str] = ("a",)) -> Routing[str, str]:
    """To m.0, by a link of its own making."""
    routing = make()
    for message in held:
        routing.send("m.0", AGENT, message)
    routing.resolved("m.0", "unix:/m.0")
    routing.linked("m.0", "link")
    return routing


def why(effects: Sequence[Effect[str, str]]) -> Failure:
    """Of the one burial among `effects`."""
    [failure] = [effect.gone.failure for effect in effects if isinstance(effect, Bury)]
    return failure


# ---- finding


def test_the_first_message_seeks_the_proc_and_further_ones_wait_with_it() -> None:
    routing = make()
    assert routing.send("m.0", AGENT, "a") == [Seek("m.0", AGENT)]
    assert routing.send("m.0", AGENT, "b") == []
    assert routing.resolved("m.0", "unix:/m.0") == [Connect("m.0", "unix:/m.0")]
    assert routing.send("m.0", AGENT, "c") == []


def test_a_link_that_opens_takes_what_was_held_in_order_and_only_then_is_open_to_all() -> None:
    routing = make()
    for message in "abc":
        routing.send("m.0", AGENT, message)
    routing.resolved("m.0", "unix:/m.0")
    held = [Send("link", "a"), Send("link", "b"), Send("link", "c")]
    assert routing.linked("m.0", "link") == [*held, Open("m.0", "link")]
    assert routing.send("m.0", AGENT, "d") == [Send("link", "d"), Open("m.0", "link")]


def test_what_is_held_for_one_proc_is_not_sent_to_another() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.send("m.1", AGENT, "b")
    assert routing.linked("m.1", "link 1") == [Send("link 1", "b"), Open("m.1", "link 1")]


def test_a_proc_that_is_only_known_is_not_sought() -> None:
    routing = make()
    routing.know("m.0", AGENT)
    assert routing.resolved("m.0", "unix:/m.0") == []
    assert routing.send("m.0", AGENT, "a") == [Seek("m.0", AGENT)]


def test_an_address_that_comes_twice_opens_one_link() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.resolved("m.0", "unix:/m.0")
    assert routing.resolved("m.0", "unix:/m.0") == []
    routing.linked("m.0", "link")
    assert routing.resolved("m.0", "unix:/m.0") == []


def test_an_address_nobody_asked_for_opens_no_link() -> None:
    assert make().resolved("m.0", "unix:/m.0") == []


def test_an_address_that_comes_when_the_proc_is_gone_opens_no_link() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.exited("m.0", gone(), now=0.0)
    assert routing.resolved("m.0", "unix:/m.0") == []


@pytest.mark.parametrize("state", ["sought", "connecting"])
def test_a_proc_that_connects_to_us_while_we_seek_it_gets_what_was_held(state: str) -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    if state == "connecting":
        routing.resolved("m.0", "unix:/m.0")
    assert routing.linked("m.0", "theirs") == [Send("theirs", "a"), Open("m.0", "theirs")]
    assert routing.resolved("m.0", "unix:/m.0") == []


def test_a_proc_that_connected_to_us_before_we_had_anything_to_say_needs_no_seeking() -> None:
    routing = make()
    assert routing.linked("m.0", "theirs") == []
    assert routing.send("m.0", AGENT, "a") == [Send("theirs", "a"), Open("m.0", "theirs")]


def test_a_proc_that_connected_and_left_before_we_had_anything_to_say_is_sought_like_any_other() -> None:
    routing = make()
    routing.linked("m.0", "theirs")
    assert routing.lost("m.0", "theirs", CUT, now=0.0) == []
    assert routing.send("m.0", AGENT, "a") == [Seek("m.0", AGENT)]


def test_of_two_links_opened_at_once_the_first_is_used() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.resolved("m.0", "unix:/m.0")
    routing.linked("m.0", "theirs")
    assert routing.linked("m.0", "ours") == []
    assert routing.send("m.0", AGENT, "b") == [Send("theirs", "b"), Open("m.0", "theirs")]


def test_the_second_of_two_links_may_break_or_never_open() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.resolved("m.0", "unix:/m.0")
    routing.linked("m.0", "theirs")
    assert routing.connect_failed("m.0", CUT, now=0.0) == []
    routing.linked("m.0", "ours")
    assert routing.lost("m.0", "ours", CUT, now=0.0) == []
    assert routing.next_deadline() is None
    assert routing.send("m.0", AGENT, "b") == [Send("theirs", "b"), Open("m.0", "theirs")]


# ---- losing


def test_a_broken_link_asks_the_agent_why_and_holds_what_is_sent_meanwhile() -> None:
    routing = linked()
    assert routing.lost("m.0", "link", CUT, now=5.0) == [Shut("m.0"), Seek("m.0", AGENT)]
    assert routing.next_deadline() == 7.0
    assert routing.send("m.0", AGENT, "b") == []
    assert routing.gone.get("m.0") is None


def test_the_verdict_of_the_agent_ends_the_waiting() -> None:
    routing = linked()
    routing.lost("m.0", "link", CUT, now=5.0)
    routing.send("m.0", AGENT, "b")
    verdict = gone("killed by SIGKILL")
    assert routing.exited("m.0", verdict, now=5.1) == [HandBack("m.0", verdict, ["b"]), Bury("m.0", verdict)]
    assert routing.next_deadline() is None
    assert routing.tick(99.0) == []


def test_without_a_verdict_the_proc_is_buried_when_the_time_is_over() -> None:
    routing = linked()
    routing.lost("m.0", "link", CUT, now=5.0)
    routing.send("m.0", AGENT, "b")
    assert routing.tick(6.9) == []
    effects = routing.tick(7.0)
    failure = why(effects)
    assert effects == [HandBack("m.0", Gone(failure, False), ["b"]), Bury("m.0", Gone(failure, False))]
    assert (failure.kind, failure.mesh, failure.rank) == ("link_lost", "m", 0)
    assert failure.cause == ("its link broke (ConnectionResetError: the cable was cut) and its agent did not say why")


def test_an_agent_that_only_says_where_the_proc_listens_gives_no_verdict() -> None:
    routing = linked()
    routing.lost("m.0", "link", CUT, now=0.0)
    assert routing.resolved("m.0", "unix:/m.0") == []
    assert why(routing.tick(2.0)).kind == "link_lost"


def test_a_new_link_after_one_broke_mends_nothing() -> None:
    routing = linked()
    routing.lost("m.0", "link", CUT, now=0.0)
    assert routing.linked("m.0", "again") == []
    assert routing.send("m.0", AGENT, "b") == []
    assert routing.lost("m.0", "again", CUT, now=1.0) == []
    assert why(routing.tick(2.0)).kind == "link_lost"


def test_a_link_that_cannot_be_opened_asks_the_agent_why() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.resolved("m.0", "unix:/m.0")
    assert routing.connect_failed("m.0", CUT, now=1.0) == [Seek("m.0", AGENT)]
    assert routing.send("m.0", AGENT, "b") == []
    effects = routing.tick(3.0)
    assert "no link to it could be opened" in why(effects).cause
    assert effects[0] == HandBack("m.0", routing.gone["m.0"], ["a", "b"])


def test_a_proc_that_could_not_be_reached_may_still_connect_to_us() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.resolved("m.0", "unix:/m.0")
    routing.connect_failed("m.0", CUT, now=1.0)
    assert routing.linked("m.0", "theirs") == [Send("theirs", "a"), Open("m.0", "theirs")]
    assert routing.tick(99.0) == []


def test_each_proc_has_a_time_of_its_own_for_its_verdict() -> None:
    routing = make()
    for number in range(2):
        routing.send(f"m.{number}", AGENT, "a")
        routing.linked(f"m.{number}", f"link {number}")
        routing.lost(f"m.{number}", f"link {number}", CUT, now=float(number))
    assert why(routing.tick(2.5)).rank == 0
    assert routing.next_deadline() == 3.0
    assert why(routing.tick(3.0)).rank == 1


# ---- ends


@pytest.mark.parametrize("planned", [True, False])
def test_an_end_before_there_is_a_link_hands_back_what_was_held(planned: bool) -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.send("m.0", AGENT, "b")
    end = gone(planned=planned)
    assert routing.exited("m.0", end, now=0.0) == [HandBack("m.0", end, ["a", "b"]), Bury("m.0", end)]
    assert routing.gone["m.0"] == end


def test_an_end_that_comes_before_the_last_words_waits_for_them() -> None:
    routing = linked()
    end = gone()
    assert routing.exited("m.0", end, now=0.0) == [Shut("m.0")]
    assert routing.gone["m.0"] == end
    assert routing.lost("m.0", "link", CUT, now=0.1) == [Shut("m.0"), Bury("m.0", end)]
    assert routing.next_deadline() is None


def test_a_link_that_outlives_its_proc_is_not_waited_for_for_ever() -> None:
    routing = linked()
    end = gone()
    routing.exited("m.0", end, now=1.0)
    assert routing.next_deadline() == 3.0
    assert routing.tick(3.0) == [Shut("m.0"), Bury("m.0", end)]
    assert routing.lost("m.0", "link", CUT, now=4.0) == []


def test_the_end_of_a_proc_that_nothing_was_sent_to_is_told_as_well() -> None:
    assert make().exited("m.0", gone(), now=0.0) == [Bury("m.0", gone())]


def test_the_end_of_a_proc_that_only_connected_to_us_is_told_when_its_link_ends() -> None:
    routing = make()
    routing.linked("m.0", "theirs")
    assert routing.exited("m.0", gone(), now=0.0) == [Shut("m.0")]
    assert routing.lost("m.0", "theirs", CUT, now=0.0) == [Shut("m.0"), Bury("m.0", gone())]


def test_an_end_is_told_once_and_the_first_reason_stands() -> None:
    routing = make()
    routing.exited("m.0", gone("first"), now=0.0)
    assert routing.exited("m.0", gone("second"), now=0.0) == []
    assert routing.gone["m.0"] == gone("first")
    routing = linked()
    routing.lost("m.0", "link", CUT, now=0.0)
    routing.tick(2.0)
    assert routing.exited("m.0", gone("late"), now=3.0) == []


def test_what_is_sent_to_a_proc_that_is_gone_comes_back_at_once() -> None:
    routing = linked()
    end = gone(planned=True)
    routing.exited("m.0", end, now=0.0)
    assert routing.send("m.0", AGENT, "late") == [HandBack("m.0", end, ("late",))]
    routing.lost("m.0", "link", CUT, now=0.0)
    assert routing.send("m.0", AGENT, "later") == [HandBack("m.0", end, ("later",))]


def test_a_link_that_opens_when_the_proc_is_gone_is_not_used() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    routing.exited("m.0", gone(), now=0.0)
    assert routing.linked("m.0", "late") == []
    assert routing.lost("m.0", "late", CUT, now=0.0) == []
    assert routing.connect_failed("m.0", CUT, now=0.0) == []


# ---- agents


def test_one_link_to_an_agent_serves_all_and_is_used_while_it_opens() -> None:
    routing = make()
    assert routing.agent_link(AGENT) is None
    routing.agent_opening(AGENT, "to h1")
    assert routing.agent_link(AGENT) == "to h1"
    assert routing.linked("h1", "to h1") == []
    assert routing.agent_link(AGENT) == "to h1"
    assert routing.agent_link(OTHER_AGENT) is None


def test_the_end_of_an_agent_is_the_end_of_all_procs_of_its_host_in_whatever_state() -> None:
    routing = make()
    routing.agent_opening(AGENT, "to h1")
    routing.linked("h1", "to h1")
    routing.know("known.0", AGENT)
    routing.send("sought.0", AGENT, "a")
    routing.send("linked.0", AGENT, "b")
    routing.linked("linked.0", "link")
    routing.send("broken.0", AGENT, "c")
    routing.linked("broken.0", "cut")
    routing.lost("broken.0", "cut", CUT, now=0.0)
    routing.send("elsewhere.0", OTHER_AGENT, "d")
    effects = routing.lost("h1", "to h1", CUT, now=1.0)
    buried = {effect.proc: effect.gone.failure for effect in effects if isinstance(effect, Bury)}
    assert set(buried) == set(routing.gone) == {"known.0", "sought.0", "linked.0", "broken.0"}
    assert {failure.kind for failure in buried.values()} == {"host_lost"}
    assert "unix:/agent" in buried["known.0"].cause
    assert [effect.messages for effect in effects if isinstance(effect, HandBack)] == [["a"]]
    assert routing.agent_link(AGENT) is None
    assert routing.next_deadline() is None


def test_an_agent_that_cannot_be_reached_is_a_lost_host() -> None:
    routing = make()
    routing.send("m.0", AGENT, "a")
    assert why(routing.agent_lost(AGENT, CUT)).kind == "host_lost"


def test_a_verdict_that_came_before_its_agent_was_lost_stands() -> None:
    routing = linked()
    routing.exited("m.0", gone("killed"), now=0.0)
    assert routing.agent_lost(AGENT, CUT) == [Shut("m.0"), Bury("m.0", gone("killed"))]


def test_a_second_link_to_an_agent_may_break() -> None:
    routing = linked()
    routing.agent_opening(AGENT, "to h1")
    assert routing.lost("h1", "another", CUT, now=0.0) == []
    assert routing.agent_link(AGENT) == "to h1"


# ---- whatever happens


class World:
    """Performs effects as `Peers` does, and writes down what became of each message."""

    def __init__(self) -> None:
        self.routing = Routing[int, int](verdict_timeout_s=3.0)
        self.open: dict[str, int] = {}
        self.links: dict[int, str] = {}
        self.given: dict[str, list[int]] = {}
        self.sent: dict[str, list[int]] = {}
        self.back: dict[str, list[int]] = {}
        self.buried: list[str] = []
        self.asked: list[str] = []
        self.dialed: list[str] = []
        self.now = 0.0
        self.count = 0

    def send(self, proc: str, agent: AgentRef) -> None:
        self.count += 1
        self.given.setdefault(proc, []).append(self.count)
        link = self.open.get(proc)
        if link is not None:
            self._transmit(link, self.count, proc)
        else:
            self.perform(self.routing.send(proc, agent, self.count), sender=proc)

    def link(self, proc: str) -> None:
        self.count += 1
        self.links[self.count] = proc
        self.perform(self.routing.linked(proc, self.count), sender=proc)

    def cut(self, link: int) -> None:
        self.perform(self.routing.lost(self.links.pop(link), link, CUT, now=self.now))

    def perform(self, effects: Sequence[Effect[int, int]], sender: str = "") -> None:
        for effect in effects:
            match effect:
                case Send(link, message):
                    self._transmit(link, message, sender)
                case Open(proc, link):
                    assert self.links[link] == proc
                    self.open[proc] = link
                case Shut(proc):
                    self.open.pop(proc, None)
                case Seek(proc, _):
                    self.asked.append(proc)
                case Connect(proc, _):
                    self.dialed.append(proc)
                case HandBack(proc, _, messages):
                    assert proc in self.routing.gone
                    self.back.setdefault(proc, []).extend(messages)
                case Bury(proc, _):
                    assert proc in self.routing.gone
                    assert proc not in self.open
                    self.buried.append(proc)

    def _transmit(self, link: int, message: int, proc: str) -> None:
        assert self.links[link] == proc, "a link that is open, to the right proc"
        self.sent.setdefault(proc, []).append(message)


PROCS = {"m.0": AGENT, "m.1": AGENT, "n.0": OTHER_AGENT}
EVENTS = ["send", "send", "know", "resolved", "link", "cut", "connect failed", "exited", "agent lost", "time"]


def happen(world: World, event: str, proc: str, number: int) -> None:
    routing, agent = world.routing, PROCS[proc]
    match event:
        case "send":
            world.send(proc, agent)
        case "know":
            routing.know(proc, agent)
        case "resolved":
            world.perform(routing.resolved(proc, "somewhere"))
        case "link":
            world.link(proc)
        case "cut":
            for link in [link for link, peer in world.links.items() if peer == proc][:number]:
                world.cut(link)
        case "connect failed":
            world.perform(routing.connect_failed(proc, CUT, now=world.now))
        case "exited":
            world.perform(routing.exited(proc, gone(planned=bool(number % 2)), now=world.now))
        case "agent lost":
            world.perform(routing.agent_lost(agent, CUT))
        case "time":
            world.now += number
            world.perform(routing.tick(world.now))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(sorted(PROCS)), st.integers(1, 3)), max_size=40))
def test_whatever_happens_each_message_is_sent_or_handed_back_once_in_order_and_each_proc_buried_once(
    events: list[tuple[str, str, int]],
) -> None:
    world = World()
    for event, proc, number in events:
        happen(world, event, proc, number)
        assert len(world.buried) == len(set(world.buried))
    for proc in PROCS:  # in the end all die, and every agent says so
        happen(world, "exited", proc, 1)
        happen(world, "cut", proc, len(events))
    assert sorted(world.buried) == sorted(PROCS)
    assert world.routing.next_deadline() is None
    for proc, given_ in world.given.items():
        sent, back = world.sent.get(proc, []), world.back.get(proc, [])
        assert sent == sorted(sent)
        assert back == sorted(back)
        assert sorted(sent + back) == given_


@settings(max_examples=50, deadline=None)
@given(st.permutations(["exited", "exited", "cut", "resolved", "connect failed", "time", "link", "send"]))
def test_a_death_is_told_once_however_its_news_and_a_broken_link_overtake_each_other(events: list[str]) -> None:
    world = World()
    world.send("m.0", AGENT)
    for event in events:
        happen(world, event, "m.0", 3)
    happen(world, "cut", "m.0", 9)
    assert world.buried == ["m.0"]
    assert sorted(world.sent.get("m.0", []) + world.back.get("m.0", [])) == world.given["m.0"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["resolved", "link", "connect failed", "send"]), max_size=8))
def test_a_proc_that_lives_and_whose_links_hold_is_never_buried(events: list[str]) -> None:
    world = World()
    world.send("m.0", AGENT)
    for event in events:
        happen(world, event, "m.0", 1)
    world.link("m.0")
    happen(world, "time", "m.0", 99)
    assert world.buried == []
    assert world.sent["m.0"] == world.given["m.0"]
