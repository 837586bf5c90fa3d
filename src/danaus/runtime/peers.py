"""`Peers`: what this process knows of other procs: how to reach each, and which are gone and why."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from danaus.errors import Failure
from danaus.protocol.message import Message, ProcExited, Resolve, Resolved
from danaus.runtime.link import Link
from danaus.runtime.links import Links
from danaus.runtime.pickling import Pickled
from danaus.runtime.reactor import Reactor

_NOTHING = Pickled(b"")


@dataclass(frozen=True, slots=True)
class AgentRef:
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


@dataclass(frozen=True, slots=True)
class Gone:
    """A proc that is no more."""

    failure: Failure
    planned: bool
    """It was stopped on purpose."""


@dataclass(slots=True)
class _Peer:
    id: str
    agent: AgentRef
    outbox: list[tuple[Message, Pickled]] = field(default_factory=list)
    sought: bool = False
    verdict: object | None = None


class Peers:
    """Sends to procs by id, finding them through the agents of their hosts. Decides when one is gone."""

    def __init__(
        self, links: Links, reactor: Reactor, on_gone: Callable[[str, Gone], None], *, verdict_timeout_s: float
    ) -> None:
        self._links = links
        self._reactor = reactor
        self._on_gone = on_gone
        self._verdict_timeout_s = verdict_timeout_s
        self._lock = threading.Lock()
        self._peers: dict[str, _Peer] = {}
        self._gone: dict[str, Gone] = {}
        self._connecting: dict[Link, str] = {}
        self._to_agents: dict[Link, AgentRef] = {}

    def gone(self, proc: str) -> Gone | None:
        """Why `proc` is no more, or None as far as is known here."""
        return self._gone.get(proc)

    def send(self, proc: str, agent: AgentRef, message: Message, pickled: Pickled = _NOTHING) -> None:
        """Send to `proc`, whose host's agent is `agent`. Never blocks; a dead proc is told of by `on_gone`."""
        link = self._links.find(proc)
        if link is not None and proc in self._peers:
            link.send(message, pickled.payload, pickled.buffers, pickled.code)
            return
        with self._reactor.shield, self._lock:
            peer = self._peers.get(proc)
            if peer is None:
                peer = self._peers[proc] = _Peer(proc, agent)
            link = self._links.find(proc)
            if link is not None:
                link.send(message, pickled.payload, pickled.buffers, pickled.code)
                return
            owned = Pickled(pickled.payload, [bytes(buffer) for buffer in pickled.buffers], pickled.code)
            peer.outbox.append((message, owned))
            if peer.sought:
                return
            peer.sought = True
        self._reactor.post(partial(self._seek, peer))

    def opening(self, agent: AgentRef, link: Link) -> None:
        """`link`, not open yet, leads to `agent`: use it rather than a second one."""
        self._to_agents[link] = agent

    def send_to_agent(self, agent: AgentRef, message: Message, pickled: Pickled = _NOTHING) -> None:
        """Send to an agent. On the driving thread."""
        link = self._links.find(agent.id)
        if link is None:
            link = next((link for link, ref in self._to_agents.items() if ref == agent), None)
        if link is None:
            try:
                link = self._links.connect(agent.address)
            except OSError as error:
                self._lose_host(agent, error)
                return
            self._to_agents[link] = agent
        link.send(message, pickled.payload, pickled.buffers, pickled.code)

    # ---- events, all on the driving thread

    def linked(self, link: Link) -> None:
        """A link to `link.peer` is open: send what waited for it."""
        self._connecting.pop(link, None)
        self._to_agents.pop(link, None)
        with self._lock:
            peer = self._peers.get(link.peer)
            if peer is None:
                return
            outbox, peer.outbox = peer.outbox, []
            for message, pickled in outbox:
                link.send(message, pickled.payload, pickled.buffers, pickled.code)

    def resolved(self, message: Resolved) -> None:
        """An agent said where a proc listens."""
        peer = self._peers.get(message.proc)
        if peer is None or message.proc in self._gone or self._links.find(message.proc) or peer.verdict:
            return
        try:
            link = self._links.connect(message.address)
        except OSError as error:
            self._await_verdict(peer, error)
            return
        self._connecting[link] = message.proc

    def exited(self, message: ProcExited) -> None:
        """An agent said that a proc is no more."""
        self._bury(message.proc, Gone(message.failure, message.planned))

    def connect_failed(self, link: Link, reason: Exception) -> None:
        """A link that was being opened came to nothing."""
        agent = self._to_agents.pop(link, None)
        if agent is not None:
            self._lose_host(agent, reason)
        proc = self._connecting.pop(link, None)
        if proc is not None:
            self._await_verdict(self._peers[proc], reason)

    def lost(self, peer_id: str, reason: Exception) -> None:
        """The last link to a proc or an agent broke."""
        peer = self._peers.get(peer_id)
        if peer is not None:
            self._await_verdict(peer, reason)
        agents = {peer.agent for peer in self._peers.values() if peer.agent.id == peer_id}
        for agent in agents:
            self._lose_host(agent, reason)

    def know(self, proc: str, agent: AgentRef) -> None:
        """Take note of a proc before anything is sent to it."""
        with self._lock:
            if proc not in self._peers:
                self._peers[proc] = _Peer(proc, agent)

    def _seek(self, peer: _Peer) -> None:
        gone = self._gone.get(peer.id)
        if gone is not None:
            self._on_gone(peer.id, gone)
            return
        self.send_to_agent(peer.agent, Resolve(peer.id))

    def _await_verdict(self, peer: _Peer, reason: Exception) -> None:
        """A broken link says that something happened; the agent says what. It has `verdict_timeout_s` to do so."""
        if peer.id in self._gone or peer.verdict is not None:
            return
        text = f"its link broke ({type(reason).__name__}: {reason}) and its agent did not say why"
        failure = _failure_of(peer.id, "link_lost", text)
        peer.verdict = self._reactor.call_later(
            self._verdict_timeout_s, lambda: self._bury(peer.id, Gone(failure, planned=False))
        )
        self.send_to_agent(peer.agent, Resolve(peer.id))

    def _lose_host(self, agent: AgentRef, reason: Exception) -> None:
        text = f"the agent of its host at {agent.address} is gone ({type(reason).__name__}: {reason})"
        for peer in [peer for peer in self._peers.values() if peer.agent == agent]:
            self._bury(peer.id, Gone(_failure_of(peer.id, "host_lost", text), planned=False))

    def _bury(self, proc: str, gone: Gone) -> None:
        if proc in self._gone:
            return
        self._gone[proc] = gone
        with self._lock:
            peer = self._peers.get(proc)
            if peer is not None:
                peer.outbox.clear()
                verdict, peer.verdict = peer.verdict, None
                if verdict is not None:
                    self._reactor.cancel_timer(verdict)
        self._on_gone(proc, gone)


def _failure_of(proc: str, kind: str, cause: str) -> Failure:
    mesh, _, rank = proc.rpartition(".")
    return Failure(kind=kind, mesh=mesh, rank=int(rank), point={}, cause=cause)
