"""`Owners`: brings each failure to the owner of what failed, and on up the tree until somebody handles it."""

import threading
from collections.abc import Callable, Container
from typing import Protocol

from danaus.errors import Failure
from danaus.protocol.message import SpawnActor, Told
from danaus.protocol.routing import AgentRef, Gone
from danaus.protocol.supervision import ROOT, OwnerId, Ownership, Tell, answered
from danaus.runtime.cell import ActorCell


class OwnerRuntime(Protocol):
    """What `Owners` needs of its runtime."""

    @property
    def id(self) -> str:
        """The proc's id."""

    def find_cell(self, actor: str) -> ActorCell | None:
        """A living actor of this process."""

    def send_told(self, proc: str, agent: AgentRef, told: Told) -> None:
        """Send news of a failure to another process."""

    def failed_at_root(self, key: str, failure: Failure) -> None:
        """No actor in this process is left to handle `failure`."""


class Owners:
    """The owners that live in this process. Thread-safe."""

    def __init__(self, runtime: OwnerRuntime) -> None:
        self._runtime = runtime
        self._lock = threading.Lock()
        self._ownership = Ownership()

    def own_procs(self, mesh: str, owner: str) -> None:
        """The actor `owner` ("" for none) started the proc mesh `mesh`."""
        with self._lock:
            self._ownership.own_procs(mesh, OwnerId(owner))

    def own_actors(self, mesh: str, procs: str, *, owner: str, ranks: Container[int]) -> None:
        """The actor `owner` ("" for none) spawned the actor mesh `mesh` on `ranks` of `procs`."""
        with self._lock:
            self._ownership.own_actors(mesh, procs, owner=OwnerId(owner), ranks=ranks)

    def disown(self, mesh: str) -> None:
        """`mesh` was stopped on purpose: its end is no failure."""
        with self._lock:
            self._ownership.disown(mesh)

    def proc_gone(self, proc: str, gone: Gone) -> None:
        """A proc died."""
        if gone.planned:
            return
        mesh, _, rank = proc.rpartition(".")
        with self._lock:
            tells = self._ownership.proc_died(mesh, int(rank), failure=gone.failure)
        for tell in tells:
            self._tell(tell, proc)

    def actor_failed(self, mesh: str, rank: int, key: str, failure: Failure) -> None:
        """A rank of an actor mesh failed; nothing happens unless its owner lives here and does not know yet."""
        with self._lock:
            tells = self._ownership.actor_failed(mesh, rank, failure=failure)
        for tell in tells:
            self._tell(tell, key)

    def told(self, message: Told) -> None:
        """News from another process, for an owner here."""
        if message.failure.chain or message.failure.kind == "cleanup_raised":  # which comes after it was disowned
            _, _, owner = message.owner.partition("/")
            self._tell(Tell(OwnerId(owner), message.failure), message.key)
        else:
            self.actor_failed(message.mesh, message.rank, message.key, message.failure)

    def tell_owner(self, spawn: SpawnActor, key: str, failure: Failure) -> None:
        """Bring `failure` to the owner of the actor that `spawn` made."""
        message = Told(spawn.owner, spawn.actor, spawn.rank, key, failure)
        proc, _, _ = spawn.owner.partition("/")
        if proc == self._runtime.id:
            self.told(message)
        else:
            self._runtime.send_told(proc, AgentRef.from_text(spawn.owner_agent), message)

    def _tell(self, tell: Tell, key: str) -> None:
        if tell.owner == ROOT:
            self._runtime.failed_at_root(key, tell.failure)
            return
        cell = self._runtime.find_cell(tell.owner)
        if cell is not None:
            cell.supervise(tell.failure, self._on_answer(tell, key, cell))

    def _on_answer(self, tell: Tell, key: str, cell: ActorCell) -> Callable[[bool], None]:
        def on_answer(handled: bool) -> None:
            escalate = answered(tell, handled=handled, owner_name=cell.name)
            if escalate is not None:
                self.tell_owner(cell.spawn, key, escalate.failure)

        return on_answer
