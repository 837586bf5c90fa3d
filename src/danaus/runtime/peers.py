"""`Peers`: the edge of `Routing`: opens links, sends, keeps its timer, and tells its owner which procs are gone."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import ParamSpec, TypeAlias

from danaus.errors import ConfigError
from danaus.protocol.message import Message, ProcExited, Resolve, Resolved
from danaus.protocol.routing import AgentRef, Bury, Connect, Effect, Gone, HandBack, Open, Routing, Seek, Send, Shut
from danaus.runtime.link import Link
from danaus.runtime.links import Links
from danaus.runtime.pickling import Pickled
from danaus.runtime.reactor import Reactor

_NOTHING = Pickled(b"")

P = ParamSpec("P")

_Held: TypeAlias = tuple[Message, Pickled]
_Effect: TypeAlias = Effect[Link, _Held]


class Peers:
    """Sends to procs by id, finding them through the agents of their hosts."""

    def __init__(
        self,
        links: Links,
        reactor: Reactor,
        *,
        on_gone: Callable[[str, Gone], None],
        on_undelivered: Callable[[str, Gone, Sequence[Message]], None],
        verdict_timeout_s: float,
    ) -> None:
        """Know nobody yet.

        Args:
            links: opens links.
            reactor: its driving thread runs both callbacks.
            on_gone: told once of each proc that is no more.
            on_undelivered: told of messages for such a proc that never left this process.
            verdict_timeout_s: how long after a link broke its agent may take to say why.
        """
        self._links = links
        self._reactor = reactor
        self._on_gone = on_gone
        self._on_undelivered = on_undelivered
        self._lock = threading.Lock()
        self._routing = Routing[Link, _Held](verdict_timeout_s=verdict_timeout_s)
        self._gone = self._routing.gone
        self._open: dict[str, Link] = {}
        """Links that may be used without asking: what was held for them is sent."""
        self._opening: dict[Link, str | AgentRef] = {}
        """Whom the links opened by this side should lead to."""
        self._timer: object | None = None
        self._deadline: float | None = None

    def gone(self, proc: str) -> Gone | None:
        """Why `proc` is no more, or None as far as is known here."""
        return self._gone.get(proc)

    def send(self, proc: str, agent: AgentRef, message: Message, pickled: Pickled = _NOTHING) -> None:
        """Send to `proc`, whose host's agent is `agent`. From any thread; never blocks.

        Whoever waits for an answer from it, and registered before that, hears by the callbacks if none can come.
        """
        link = self._open.get(proc)
        if link is not None:
            link.send(message, pickled.payload, pickled.buffers, pickled.code)
            return
        with self._reactor.shield:
            owned = Pickled(pickled.payload, [bytes(buffer) for buffer in pickled.buffers], pickled.code)
            with self._lock:
                rest = self._perform_locked(self._routing.send(proc, agent, (message, owned)))
            if rest:  # the callers' locks, and the thread, are not ours to call back under
                self._reactor.post(partial(self._perform, rest))

    def know(self, proc: str, agent: AgentRef) -> None:
        """Take note of a proc before anything is sent to it. From any thread."""
        with self._lock:
            self._routing.know(proc, agent)

    # ---- agents, on the driving thread

    def opening(self, agent: AgentRef, link: Link) -> None:
        """`link`, not open yet, leads to `agent`: use it rather than a second one."""
        self._opening[link] = agent
        with self._lock:
            self._routing.agent_opening(agent, link)

    def send_to_agent(self, agent: AgentRef, message: Message, pickled: Pickled = _NOTHING) -> None:
        """Send to an agent. If it cannot be reached, all procs of its host are gone."""
        link = self._routing.agent_link(agent)
        if link is None:
            try:
                link = self._links.connect(agent.address)
            except (OSError, ConfigError) as error:
                self._handle(self._routing.agent_lost, agent, error)
                return
            self.opening(agent, link)
        link.send(message, pickled.payload, pickled.buffers, pickled.code)

    # ---- events, all on the driving thread

    def linked(self, link: Link) -> None:
        """A link to `link.peer` is open: send what waited for it."""
        target = self._opening.pop(link, None)
        self._handle(self._routing.linked, link.peer, link)
        if target is not None and link.peer != (target.id if isinstance(target, AgentRef) else target):
            self._unreachable(target, ConnectionRefusedError(f"{link.peer} answers at {link.address}"))

    def connect_failed(self, link: Link, reason: Exception) -> None:
        """A link that was being opened came to nothing."""
        target = self._opening.pop(link, None)
        if target is not None:
            self._unreachable(target, reason)

    def lost(self, link: Link, reason: Exception) -> None:
        """An open link to a proc or an agent ended."""
        self._handle(self._routing.lost, link.peer, link, reason, now=self._reactor.clock.now())

    def resolved(self, message: Resolved) -> None:
        """An agent said where a proc listens."""
        self._handle(self._routing.resolved, message.proc, message.address)

    def exited(self, message: ProcExited) -> None:
        """An agent said that a proc is no more."""
        gone = Gone(message.failure, message.planned)
        self._handle(self._routing.exited, message.proc, gone, now=self._reactor.clock.now())

    def _unreachable(self, target: str | AgentRef, reason: Exception) -> None:
        if isinstance(target, AgentRef):
            self._handle(self._routing.agent_lost, target, reason)
        else:
            self._handle(self._routing.connect_failed, target, reason, now=self._reactor.clock.now())

    def _tick(self) -> None:
        self._timer = self._deadline = None
        self._handle(self._routing.tick, self._reactor.clock.now())

    # ---- effects

    def _handle(self, event: Callable[P, Sequence[_Effect]], *args: P.args, **kwargs: P.kwargs) -> None:
        with self._lock:
            rest = self._perform_locked(event(*args, **kwargs))
        self._keep_time()
        self._perform(rest)

    def _perform_locked(self, effects: Sequence[_Effect]) -> list[Seek | Connect | HandBack[_Held] | Bury]:
        """Send under the lock, so that no message overtakes one that was held; the effects left are returned."""
        rest: list[Seek | Connect | HandBack[_Held] | Bury] = []
        for effect in effects:
            match effect:
                case Send(link, (message, pickled)):
                    link.send(message, pickled.payload, pickled.buffers, pickled.code)
                case Open(proc, link):
                    self._open[proc] = link
                case Shut(proc):
                    self._open.pop(proc, None)
                case _:
                    rest.append(effect)
        return rest

    def _perform(self, effects: Sequence[Seek | Connect | HandBack[_Held] | Bury]) -> None:
        for effect in effects:
            match effect:
                case Seek(proc, agent):
                    self.send_to_agent(agent, Resolve(proc))
                case Connect(proc, address):
                    self._connect(proc, address)
                case HandBack(proc, gone, held):
                    self._on_undelivered(proc, gone, [message for message, _ in held])
                case Bury(proc, gone):
                    self._on_gone(proc, gone)

    def _connect(self, proc: str, address: str) -> None:
        try:
            link = self._links.connect(address)
        except (OSError, ConfigError) as error:
            self._unreachable(proc, error)
            return
        self._opening[link] = proc

    def _keep_time(self) -> None:
        deadline = self._routing.next_deadline()
        if deadline == self._deadline:
            return
        if self._timer is not None:
            self._reactor.cancel_timer(self._timer)
            self._timer = None
        self._deadline = deadline
        if deadline is not None:
            self._timer = self._reactor.call_later(max(0.0, deadline - self._reactor.clock.now()), self._tick)
