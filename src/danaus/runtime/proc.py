"""`Proc`: the runtime of one process: takes messages apart by kind, and offers sending to the layer of meshes."""

import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from danaus.config import Settings
from danaus.errors import Error, Failure
from danaus.protocol.frame import Frame
from danaus.protocol.message import (
    NO_REPLY,
    CallId,
    Cancel,
    Cast,
    Code,
    Gap,
    Message,
    Ping,
    ProcExited,
    Refused,
    Reply,
    Resolved,
    SpawnActor,
    StopActor,
    Told,
    proc_id,
)
from danaus.protocol.ordering import Numbering
from danaus.protocol.routing import AgentRef, Gone
from danaus.runtime.actors import Actors
from danaus.runtime.callbacks import CallbackThread
from danaus.runtime.calls import CallPlan, Calls, lost
from danaus.runtime.cell import ActorCell, StopChild
from danaus.runtime.context import running
from danaus.runtime.future import Claim, Future
from danaus.runtime.link import Link
from danaus.runtime.links import Links
from danaus.runtime.mailbox import Answer
from danaus.runtime.owners import Owners
from danaus.runtime.peers import Peers
from danaus.runtime.pickling import CodeBook, Pickled
from danaus.runtime.reactor import Reactor
from danaus.runtime.root import Root
from danaus.transport.stream import Listener
from danaus.transport.wires import Wires

_NOTHING = Pickled(b"")

T = TypeVar("T")

OtherMessage = Callable[[Link, Message, Frame], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is and what it may prove."""

    id: str
    name: str
    secret: bytes
    agent: AgentRef
    """The agent of its own host."""
    procs: bytes = b""
    """Wire form of the proc mesh it belongs to; none for a client."""


class Proc:
    """One process's part in the mesh. Everything that may run user code runs elsewhere: cells, futures, callbacks."""

    def __init__(
        self,
        identity: Identity,
        settings: Settings,
        reactor: Reactor,
        wires: Wires,
        *,
        is_client: bool,
        pid: int | None = None,
    ) -> None:
        self.identity = identity
        self.settings = settings
        self.reactor = reactor
        self.is_client = is_client
        self.callbacks = CallbackThread(f"danaus-callbacks-{identity.name}")
        self.book = CodeBook()
        self.root = Root(reactor, self.callbacks, grace_s=settings.unhandled_grace_s)
        self.calls = Calls(self, self.book, claim=self._claim, abandon=self._abandon)
        self.actors = Actors(self, park_timeout_s=settings.park_timeout_s)
        self.owners = Owners(self)
        self.children: dict[str, StopChild] = {}
        """Stops for the meshes that no actor of this process owns, by mesh id."""
        self.links = Links(
            identity.id, identity.secret, reactor, wires, self, connect_timeout_s=settings.connect_timeout_s
        )
        self.peers = Peers(
            self.links,
            reactor,
            on_gone=self._proc_gone,
            on_undelivered=self._undelivered,
            verdict_timeout_s=settings.verdict_timeout_s,
        )
        self.other_message: OtherMessage = lambda link, message, frame: None
        """Takes what is not about actors: set by the client and by the main program of a proc."""
        self.agent_lost: Callable[[Exception], None] = lambda reason: None
        self._numberings: dict[tuple[str, str], Numbering] = {}
        self._numbers_lock = threading.Lock()
        self._closed = False
        self._where = (socket.gethostname(), pid or os.getpid())

    @property
    def id(self) -> str:
        """This proc's id."""
        return self.identity.id

    def listen(self, listener: Listener) -> None:
        """Accept links."""
        self.links.listen(listener)

    def where(self) -> tuple[str, int]:
        """Host name and pid."""
        return self._where

    # ---- sending, for the layer of meshes

    def origin(self) -> str:
        """Who sends what this thread sends: the actor that runs, or the process."""
        now = running.get()
        if now is None or now.runtime is not self:
            return self.id
        assert isinstance(now.actor, ActorCell)
        return f"{self.id}/{now.actor.spawn.actor}"

    def owner(self) -> tuple[str, dict[str, StopChild]]:
        """Who owns what this thread spawns, "" for the process itself, and its stops for that, by mesh id."""
        now = running.get()
        if now is None or now.runtime is not self:
            return "", self.children
        assert isinstance(now.actor, ActorCell)
        return now.actor.spawn.actor, now.actor.children

    def send(self, proc: str, agent: AgentRef, message: Message, pickled: Pickled = _NOTHING) -> None:
        """Send a message to a proc, this one included."""
        if proc != self.id:
            self.peers.send(proc, agent, message, pickled)
            return
        frame = Frame(b"", pickled.payload, [bytearray(buffer) for buffer in pickled.buffers])
        self._take(message, frame, self._answer_here)

    def call(self, plan: CallPlan[T], endpoint: str, pickled: Pickled) -> Future[T]:
        """Send one message to each rank of `plan` and collect the replies."""
        with self.reactor.shield:  # a number that is taken is sent
            origin = self.origin()
            numbers = self._take_numbers(origin, plan)
            call, future = self.calls.open(plan, origin, numbers)
            self._cast(plan, endpoint, pickled, numbers, origin=origin, call=call)
        return future

    def broadcast(self, plan: CallPlan[T], endpoint: str, pickled: Pickled) -> Future[None]:
        """Send one message to each rank of `plan`, no replies; the future fails if a rank is known to be gone."""
        with self.reactor.shield:
            origin = self.origin()
            numbers = self._take_numbers(origin, plan)
            dead = self._cast(plan, endpoint, pickled, numbers, origin=origin, call=NO_REPLY)
        future: Future[None] = Future(self)
        if dead is not None:
            future.settle_error(dead)
        else:
            future.settle(lambda: None)
        return future

    def _take_numbers(self, origin: str, plan: CallPlan[T]) -> Sequence[int]:
        with self._numbers_lock:
            numbering = self._numberings.get((origin, plan.actor))
            if numbering is None:
                numbering = self._numberings[origin, plan.actor] = Numbering()
            return numbering.take_many(plan.ranks)

    def _cast(
        self,
        plan: CallPlan[T],
        endpoint: str,
        pickled: Pickled,
        numbers: Sequence[int],
        *,
        origin: str,
        call: CallId,
    ) -> Error | None:
        """An error if a rank is known to be gone; with a call id it ends that rank of the call as well."""
        actor, targets = plan.actor, plan.targets
        code = pickled.code_ids
        dead: Error | None = None
        for (rank, proc, agent), number in zip(targets, numbers, strict=True):
            gone = self.peers.gone(proc)
            if gone is not None:
                dead = lost(gone, plan, rank, delivered=False)
                if call != NO_REPLY:
                    self.calls.fail(call, rank, dead, "" if gone.planned else proc)
                continue
            message = Cast(
                origin,
                actor,
                endpoint,
                ((rank, 1, number),),
                call,
                plan.region_wire,
                time_left_s=plan.timeout_s,
                code=code,
            )
            self.send(proc, agent, message, pickled)
        return dead

    # ---- PeerEvents

    def peer_linked(self, link: Link) -> None:
        """A link is open."""
        self.peers.linked(link)

    def message_arrived(self, link: Link, message: Message, frame: Frame) -> None:
        """A message came over a link."""
        if not self._take(message, frame, link.answer):
            self.other_message(link, message, frame)

    def peer_lost(self, link: Link, reason: Exception) -> None:
        """A link to a peer broke."""
        if self._closed:
            return
        self.peers.lost(link, reason)
        if link.peer == self.identity.agent.id:
            self.agent_lost(reason)

    def connect_failed(self, link: Link, reason: Exception) -> None:
        """A link never came to be."""
        if not self._closed:
            self.peers.connect_failed(link, reason)

    # ---- CellOwner and OwnerRuntime

    def find_cell(self, actor: str) -> ActorCell | None:
        """A living actor of this process."""
        return self.actors.find(actor)

    def tell_owner(self, spawn: SpawnActor, key: str, failure: Failure) -> None:
        """Report a failure to the owner of an actor."""
        self.owners.tell_owner(spawn, key, failure)

    def send_told(self, proc: str, agent: AgentRef, told: Told) -> None:
        """Send news of a failure."""
        self.send(proc, agent, told)

    def failed_at_root(self, key: str, failure: Failure) -> None:
        """Nobody in this process handled `failure`."""
        self.root.failed(key, failure)

    def cell_ended(self, cell: ActorCell, refusal: Refused) -> None:
        """An actor of this process is no more."""
        self.actors.ended(cell, refusal)
        origin = f"{self.id}/{cell.spawn.actor}"
        with self._numbers_lock:
            for key in [key for key in self._numberings if key[0] == origin]:
                del self._numberings[key]

    def close(self, reason: Error) -> None:
        """End all links and calls, then the reactor."""
        self._closed = True
        self.calls.end_all(reason)
        self.reactor.post(partial(self.links.close, reason))
        self.callbacks.close()

    # ---- what arrives

    def _take(self, message: Message, frame: Frame, answer: Answer) -> bool:
        match message:
            case Cast():
                self.actors.cast(message, frame, answer)
            case Reply():
                self._replied(message, frame)
            case Code():
                self.book.learn(message.id, bytes(frame.payload))
            case Cancel():
                self.actors.cancel(message)
            case SpawnActor():
                self.actors.spawn(message, frame, answer)
            case StopActor():
                self.actors.stop(message, answer, message.rank)
            case Ping():
                self.actors.ping(message, answer)
            case Gap():
                self.actors.gap(message)
            case Told():
                self.owners.told(message)
            case Resolved():
                self.peers.resolved(message)
            case ProcExited():
                self.peers.exited(message)
            case _:
                return False
        return True

    def _answer_here(self, reply: Message, pickled: Pickled) -> None:
        frame = Frame(b"", pickled.payload, [bytearray(buffer) for buffer in pickled.buffers])
        self._take(reply, frame, self._answer_here)

    def _replied(self, message: Reply, frame: Frame) -> None:
        self.calls.reply(message, frame)
        refused = message.refused
        if refused is not None and refused.failure is not None and refused.key:
            mesh, _, rank = refused.key.rpartition(".")
            self.owners.actor_failed(mesh, int(rank), refused.key, refused.failure)

    def _proc_gone(self, proc: str, gone: Gone) -> None:
        self.calls.proc_gone(proc, gone)
        self.owners.proc_gone(proc, gone)
        self.actors.orphan(proc)

    def _undelivered(self, proc: str, gone: Gone, messages: Sequence[Message]) -> None:
        for message in messages:
            match message:
                case Cast():
                    self.calls.undelivered(message.call, message.runs[0][0], proc, gone)
                case SpawnActor() | StopActor() | Ping():
                    self.calls.undelivered(message.call, message.rank, proc, gone)

    def _abandon(self, plan: CallPlan[object], origin: str, call: CallId, unwanted: Sequence[tuple[int, int]]) -> None:
        for rank, number in unwanted:
            self.send(proc_id(plan.procs, rank), plan.agent_of(rank), Cancel(origin, plan.actor, call, number))

    def _claim(self, keys: Sequence[str], passive: bool) -> Claim | None:
        return self.root.claim(keys, passive) if self.is_client else None
