"""`Routing`: how to reach each proc, what waits until it can be reached, and which procs are gone and why.

Decides only: `runtime.peers` connects, sends and keeps the time. Its effects are performed in their order.
"""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Generic, TypeAlias, TypeVar

import msgspec

from danaus.errors import Failure
from danaus.protocol.message import split_proc_id
from danaus.protocol.timers import Timer, TimerQueue

L = TypeVar("L")
"""A link, opaque here."""
M = TypeVar("M")
"""What is sent, opaque here."""


class AgentRef(msgspec.Struct, frozen=True):
    """The agent of a host: its id and where it listens."""

    id: str
    address: str

    def to_text(self) -> str:
        """One string for headers."""
        return f"{self.id} {self.address}"

    @classmethod
    def from_text(cls, text: str) -> "AgentRef":
        """The inverse of `to_text`."""
        agent, _, address = text.partition(" ")
        return cls(agent, address)


class Gone(msgspec.Struct, frozen=True):
    """A proc that is no more."""

    failure: Failure
    planned: bool
    """It was stopped on purpose."""


class Send(msgspec.Struct, Generic[L, M], frozen=True):
    """Send over an open link."""

    link: L
    message: M


class Open(msgspec.Struct, Generic[L], frozen=True):
    """All that was held is sent: from here on, messages for `proc` may go straight to `link`."""

    proc: str
    link: L


class Shut(msgspec.Struct, frozen=True):
    """Messages for `proc` no longer go straight to a link."""

    proc: str


class Seek(msgspec.Struct, frozen=True):
    """Ask `agent` where `proc` listens, or why it is gone."""

    proc: str
    agent: AgentRef


class Connect(msgspec.Struct, frozen=True):
    """Open a link to `proc`; if it comes to nothing, say `connect_failed`."""

    proc: str
    address: str


class HandBack(msgspec.Struct, Generic[M], frozen=True):
    """These messages for `proc` were never sent, and never will be."""

    proc: str
    gone: Gone
    messages: Sequence[M]


class Bury(msgspec.Struct, frozen=True):
    """`proc` is gone, and nothing more will be heard of it. Comes once."""

    proc: str
    gone: Gone


Effect: TypeAlias = Send[L, M] | Open[L] | Shut | Seek | Connect | HandBack[M] | Bury


class _State(Enum):
    KNOWN = auto()
    """Nothing was sent to it yet."""
    SOUGHT = auto()
    """Its agent was asked where it listens."""
    CONNECTING = auto()
    LINKED = auto()
    UNREACHED = auto()
    """No link could be opened. Nothing is lost, but its agent should say why."""
    BROKEN = auto()
    """Its link broke, with whatever was under way. Its agent should say why; a new link mends nothing."""
    ENDING = auto()
    """Its agent said that it is gone; its link is still to be read to the end, since its last words may be there."""


class _Peer(msgspec.Struct, Generic[L, M]):
    agent: AgentRef | None
    """None of one that linked to us, while nothing was sent to it."""
    state: _State = _State.KNOWN
    link: L | None = None
    held: list[M] = []
    cause: Gone | None = None
    """Why it is buried when its time is over."""
    timer: Timer[str] | None = None


class Routing(Generic[L, M]):
    """Of each proc: sought through its agent, linked, and in the end buried. The caller locks it.

    A proc is buried once its link has ended and its agent has said why, in whichever order. The second of the two has
    `verdict_timeout_s` to come. The end of an agent is the end of all procs of its host.
    """

    def __init__(self, *, verdict_timeout_s: float) -> None:
        self._verdict_timeout_s = verdict_timeout_s
        self._peers: dict[str, _Peer[L, M]] = {}
        self._agents: dict[str, tuple[AgentRef, L]] = {}
        self._gone: dict[str, Gone] = {}
        self._timers = TimerQueue[str]()

    @property
    def gone(self) -> Mapping[str, Gone]:
        """The procs that are no more. Nothing is sent to one from here on, even if it is still to be buried."""
        return self._gone

    # ---- what this side wants

    def know(self, proc: str, agent: AgentRef) -> None:
        """`proc` lives on the host of `agent`: if that ends, so does it."""
        if proc not in self._gone:
            self._peer(proc, agent)

    def send(self, proc: str, agent: AgentRef, message: M) -> Sequence[Effect[L, M]]:
        """Send to `proc` when there is a link; behind what is held for it already."""
        gone = self._gone.get(proc)
        if gone is not None:
            return [HandBack(proc, gone, (message,))]
        peer = self._peer(proc, agent)
        if peer.state is _State.LINKED:
            assert peer.link is not None
            return [Send(peer.link, message), Open(proc, peer.link)]
        peer.held.append(message)
        if peer.state is not _State.KNOWN:
            return []
        peer.state = _State.SOUGHT
        return [Seek(proc, agent)]

    def agent_link(self, agent: AgentRef) -> L | None:
        """The link to `agent`, open or opening; None if one is to be opened."""
        known = self._agents.get(agent.id)
        return None if known is None else known[1]

    def agent_opening(self, agent: AgentRef, link: L) -> None:
        """`link` is being opened to `agent`."""
        self._agents[agent.id] = (agent, link)

    # ---- what happens

    def linked(self, peer_id: str, link: L) -> Sequence[Effect[L, M]]:
        """A link to a proc or an agent is open, whichever side opened it. A second one is not used."""
        if peer_id in self._gone or peer_id in self._agents:
            return []
        peer = self._peers.get(peer_id)
        if peer is None:
            self._peers[peer_id] = _Peer(None, _State.LINKED, link)
            return []
        if peer.state in (_State.LINKED, _State.BROKEN):
            return []
        self._stop_timer(peer)
        peer.state, peer.link = _State.LINKED, link
        held, peer.held = peer.held, []
        return [*(Send(link, message) for message in held), Open(peer_id, link)]

    def resolved(self, proc: str, address: str) -> Sequence[Effect[L, M]]:
        """An agent said where `proc` listens."""
        peer = self._peers.get(proc)
        if peer is None or peer.state is not _State.SOUGHT:
            return []
        peer.state = _State.CONNECTING
        return [Connect(proc, address)]

    def connect_failed(self, proc: str, reason: Exception, *, now: float) -> Sequence[Effect[L, M]]:
        """The link that `Connect` asked for came to nothing."""
        peer = self._peers.get(proc)
        if peer is None or peer.state is not _State.CONNECTING:
            return []
        peer.state = _State.UNREACHED
        return [self._await_verdict(proc, peer, f"no link to it could be opened ({_named(reason)})", now)]

    def lost(self, peer_id: str, link: L, reason: Exception, *, now: float) -> Sequence[Effect[L, M]]:
        """An open link to a proc or an agent ended. What a second one carried is the other side's affair."""
        known = self._agents.get(peer_id)
        if known is not None:
            return self.agent_lost(known[0], reason) if known[1] == link else []
        peer = self._peers.get(peer_id)
        if peer is None or peer.link != link:
            return []
        if peer.state is _State.ENDING:
            return self._bury(peer_id, self._gone[peer_id])
        if peer.agent is None:
            del self._peers[peer_id]
            return []
        peer.state, peer.link = _State.BROKEN, None
        return [Shut(peer_id), self._await_verdict(peer_id, peer, f"its link broke ({_named(reason)})", now)]

    def exited(self, proc: str, gone: Gone, *, now: float) -> Sequence[Effect[L, M]]:
        """The agent of `proc` said that it is no more."""
        if proc in self._gone:
            return []
        peer = self._peers.get(proc)
        if peer is None or peer.link is None:
            return self._bury(proc, gone)
        self._gone[proc] = gone
        peer.state = _State.ENDING
        self._start_timer(proc, peer, gone, now)
        return [Shut(proc)]

    def agent_lost(self, agent: AgentRef, reason: Exception) -> Sequence[Effect[L, M]]:
        """The link to `agent` ended, or could not be opened: its host is lost."""
        self._agents.pop(agent.id, None)
        text = f"the agent of its host at {agent.address} is gone ({_named(reason)})"
        effects: list[Effect[L, M]] = []
        for proc in [proc for proc, peer in self._peers.items() if peer.agent == agent]:
            effects.extend(self._bury(proc, Gone(_failure(proc, "host_lost", text), planned=False)))
        return effects

    def next_deadline(self) -> float | None:
        """When `tick` has something to give, if nothing else happens."""
        return self._timers.next_deadline()

    def tick(self, now: float) -> Sequence[Effect[L, M]]:
        """Bury those that waited long enough."""
        effects: list[Effect[L, M]] = []
        for proc in self._timers.pop_due(now):
            cause = self._peers[proc].cause
            assert cause is not None
            effects.extend(self._bury(proc, cause))
        return effects

    def _peer(self, proc: str, agent: AgentRef) -> _Peer[L, M]:
        peer = self._peers.get(proc)
        if peer is None:
            peer = self._peers[proc] = _Peer(agent)
        elif peer.agent is None:
            peer.agent = agent
        return peer

    def _await_verdict(self, proc: str, peer: _Peer[L, M], event: str, now: float) -> Seek:
        """A broken link says that something happened; the agent says what."""
        assert peer.agent is not None
        failure = _failure(proc, "link_lost", f"{event} and its agent did not say why")
        self._start_timer(proc, peer, Gone(failure, planned=False), now)
        return Seek(proc, peer.agent)

    def _start_timer(self, proc: str, peer: _Peer[L, M], cause: Gone, now: float) -> None:
        peer.cause = cause
        peer.timer = self._timers.schedule(now + self._verdict_timeout_s, proc)

    def _stop_timer(self, peer: _Peer[L, M]) -> None:
        if peer.timer is not None:
            self._timers.cancel(peer.timer)
            peer.timer = None

    def _bury(self, proc: str, gone: Gone) -> Sequence[Effect[L, M]]:
        effects: list[Effect[L, M]] = []
        gone = self._gone.setdefault(proc, gone)
        peer = self._peers.pop(proc, None)
        if peer is not None:
            self._stop_timer(peer)
            if peer.link is not None:
                effects.append(Shut(proc))
            if peer.held:
                effects.append(HandBack(proc, gone, peer.held))
        return [*effects, Bury(proc, gone)]


def _failure(proc: str, kind: str, cause: str) -> Failure:
    mesh, rank = split_proc_id(proc)
    return Failure(kind=kind, mesh=mesh, rank=rank, point={}, cause=cause)


def _named(reason: Exception) -> str:
    return f"{type(reason).__name__}: {reason}"
