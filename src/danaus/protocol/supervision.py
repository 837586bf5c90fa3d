"""Who is told of a failure: `Ownership` in each process, and at the root `RootLedger`, which decides on the hook."""

from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NewType

from danaus.errors import Failure
from danaus.protocol.timers import Timer, TimerQueue

OwnerId = NewType("OwnerId", str)
ROOT = OwnerId("")
"""The client: it owns what no actor owns."""

DEATHS = frozenset({"proc_exited", "host_lost", "link_lost", "constructor_raised", "actor_exited"})
"""Kinds of failure after which the rank is no more. Of others the owner is told each time."""

_MAX_SETTLED = 1024


@dataclass(frozen=True, slots=True)
class Tell:
    """Ask `owner` whether it handles `failure`."""

    owner: OwnerId
    failure: Failure


@dataclass(frozen=True, slots=True)
class Escalate:
    """Tell the owner of the owner that did not handle it."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class RunHook:
    """Nobody received or handled `failure`: run the root hook with it."""

    failure_key: str
    failure: Failure


def answered(tell: Tell, *, handled: object, owner_name: str) -> Escalate | None:
    """What follows from the answer of `__supervise__`: nothing if it is the literal True."""
    return None if handled is True else Escalate(tell.failure.escalated(owner_name))


@dataclass(slots=True)
class _ActorMesh:
    procs: str
    owner: OwnerId
    ranks: Container[int] | None
    told: set[int] = field(default_factory=set)


class Ownership:
    """The owners, in one process, of the meshes that it started. It remembers only what is owned now."""

    def __init__(self) -> None:
        self._procs: dict[str, OwnerId] = {}
        self._actors: dict[str, _ActorMesh] = {}
        self._on: dict[str, dict[str, None]] = {}
        # proc mesh -> dead rank -> who was told, while that proc mesh or an actor mesh on it is owned.
        self._told: dict[str, dict[int, set[OwnerId]]] = {}

    def own_procs(self, mesh_id: str, owner: OwnerId) -> None:
        """`owner` is told of each rank of this proc mesh that dies."""
        self._procs[mesh_id] = owner

    def own_actors(
        self, mesh_id: str, procs_mesh_id: str, *, owner: OwnerId, ranks: Container[int] | None = None
    ) -> None:
        """`owner` is told of each rank of this actor mesh that fails, or whose proc dies.

        Args:
            ranks: the base ranks of the proc mesh it was spawned on; None is all of them.
        """
        assert mesh_id not in self._actors
        self._actors[mesh_id] = _ActorMesh(procs_mesh_id, owner, ranks)
        self._on.setdefault(procs_mesh_id, {})[mesh_id] = None

    def disown(self, mesh_id: str) -> None:
        """Forget a mesh that was stopped on purpose, with the actor meshes on it. Unknown ones are no matter."""
        actors = self._actors.pop(mesh_id, None)
        if actors is None:
            self._procs.pop(mesh_id, None)
            for on_it in self._on.pop(mesh_id, ()):
                del self._actors[on_it]
            self._told.pop(mesh_id, None)
            return
        neighbours = self._on[actors.procs]
        del neighbours[mesh_id]
        if not neighbours:
            del self._on[actors.procs]
            if actors.procs not in self._procs:
                self._told.pop(actors.procs, None)

    def proc_died(self, procs_mesh_id: str, rank: int, *, failure: Failure) -> list[Tell]:
        """One `Tell` for each owner of the proc mesh, or of actors that lived there, that does not know of it yet."""
        owners: dict[OwnerId, None] = {}
        if procs_mesh_id in self._procs:
            owners[self._procs[procs_mesh_id]] = None
        for mesh_id in self._on.get(procs_mesh_id, ()):
            mesh = self._actors[mesh_id]
            if rank not in mesh.told and (mesh.ranks is None or rank in mesh.ranks):
                mesh.told.add(rank)
                owners[mesh.owner] = None
        if not owners:
            return []
        told = self._told.setdefault(procs_mesh_id, {}).setdefault(rank, set())
        fresh = [owner for owner in owners if owner not in told]
        told.update(fresh)
        return [Tell(owner, failure) for owner in fresh]

    def actor_failed(self, mesh_id: str, rank: int, *, failure: Failure) -> list[Tell]:
        """Its owner is told of a rank's death once, and each time of a broadcast whose endpoint raised."""
        mesh = self._actors.get(mesh_id)
        if mesh is None:
            return []
        if failure.kind in DEATHS:
            if rank in mesh.told:
                return []
            mesh.told.add(rank)
        return [Tell(mesh.owner, failure)]


@dataclass(slots=True)
class _Unclaimed:
    failure: Failure
    deadline: float
    grace: Timer[str] | None
    """None while a future holds the failure."""


class RootLedger:
    """Decides, in the client, which failures run the root hook: those that no caller received as an exception.

    A failure is named by its key, so that it counts once however many ways its news take.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._unclaimed: dict[str, _Unclaimed] = {}
        self._graces = TimerQueue[str]()
        # Keys claimed or given to the hook, oldest first: their late doubles change nothing.
        self._settled: OrderedDict[str, None] = OrderedDict()

    def failed(self, failure_key: str, failure: Failure, *, now: float, awaited: bool) -> None:
        """No owner handled this failure; `tick` gives it out when its grace ends unclaimed.

        Args:
            awaited: a future that nobody has looked at yet holds it, or will: wait for `claimed` or `abandoned`.
        """
        if failure_key in self._settled:
            return
        known = self._unclaimed.get(failure_key)
        if known is None:
            deadline = now + self._grace_s
            grace = None if awaited else self._graces.schedule(deadline, failure_key)
            self._unclaimed[failure_key] = _Unclaimed(failure, deadline, grace)
        elif awaited:
            self._hold(known)

    def held(self, failure_key: str) -> None:
        """A future that nobody has looked at yet holds this failure, which may be known already."""
        known = self._unclaimed.get(failure_key)
        if known is not None:
            self._hold(known)

    def claimed(self, failure_key: str) -> None:
        """A caller received it as an exception, maybe before the failure itself came."""
        known = self._unclaimed.pop(failure_key, None)
        if known is not None:
            self._hold(known)
        self._settle(failure_key)

    def abandoned(self, failure_key: str) -> None:
        """The futures that held it were dropped unobserved: it runs the hook once its grace is over."""
        known = self._unclaimed.get(failure_key)
        if known is not None and known.grace is None:
            known.grace = self._graces.schedule(known.deadline, failure_key)

    def tick(self, now: float) -> list[RunHook]:
        """The failures whose grace ended unclaimed, in the order they came."""
        return [self._run(key) for key in self._graces.pop_due(now)]

    def next_deadline(self) -> float | None:
        """When `tick` has something to give, if nothing else happens."""
        return self._graces.next_deadline()

    def closing(self) -> list[RunHook]:
        """The program ends, so nobody will claim what is left, held by a future or not."""
        for known in self._unclaimed.values():
            self._hold(known)
        return [self._run(key) for key in list(self._unclaimed)]

    def _hold(self, known: _Unclaimed) -> None:
        if known.grace is not None:
            self._graces.cancel(known.grace)
            known.grace = None

    def _run(self, failure_key: str) -> RunHook:
        self._settle(failure_key)
        return RunHook(failure_key, self._unclaimed.pop(failure_key).failure)

    def _settle(self, failure_key: str) -> None:
        self._settled[failure_key] = None
        self._settled.move_to_end(failure_key)
        if len(self._settled) > _MAX_SETTLED:
            self._settled.popitem(last=False)
