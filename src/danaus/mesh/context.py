"""`context`: where the running code is: its actor, its procs, its place in the mesh that was called."""

from dataclasses import dataclass

from danaus.mesh.client import current_proc
from danaus.mesh.proc_mesh import ProcMesh
from danaus.mesh.refs import ProcsRef, decode_procs
from danaus.protocol.message import split_proc_id
from danaus.runtime.cell import ActorCell
from danaus.runtime.context import running
from danaus.runtime.regions import region_bytes, region_of
from danaus.topology import Extent, Point


@dataclass(frozen=True, slots=True)
class Context:
    """Where the running code is."""

    actor_name: str
    """Name of its actor mesh; empty outside actors."""
    class_name: str
    proc_id: str
    actor_point: Point
    """Its place in the mesh it was spawned on."""
    point: Point
    """Its place in the mesh that was called: a slice, perhaps."""
    proc_mesh: ProcMesh
    """The procs it was spawned on."""

    @property
    def rank(self) -> int:
        """The rank of `point`."""
        return self.point.rank


def context() -> Context:
    """Where the calling code is. Outside actors the points have no axes."""
    proc = current_proc()
    now = running.get()
    if now is None or not isinstance(now.actor, ActorCell):
        point = Extent({}).point(0)
        return Context("", "", proc.id, point, point, this_proc())
    spawn = now.actor.spawn
    region = region_of(spawn.region)
    actor_point = region.extent.point(region.index_of(spawn.rank))
    point = actor_point
    if now.cast is not None:
        called = region_of(now.cast.region)
        point = called.extent.point(called.index_of(spawn.rank))
    return Context(spawn.name, spawn.class_name, proc.id, actor_point, point, ProcMesh(decode_procs(spawn.procs)))


def current_rank() -> Point:
    """The running actor's point in the mesh that was called."""
    return context().point


def current_size() -> dict[str, int]:
    """Axis -> size of the mesh that was called."""
    return dict(context().point.extent)


def this_proc() -> ProcMesh:
    """The own process, as a mesh of one proc without axes."""
    proc = current_proc()
    mesh, rank = split_proc_id(proc.id)
    if not proc.identity.procs:
        whole = Extent({}).region
        return ProcMesh(ProcsRef(mesh, "client", (proc.identity.agent.to_text(),), 1, region_bytes(whole)))
    ref = decode_procs(proc.identity.procs)
    base = ref.whole_region().base
    return ProcMesh(ref.with_region(base.region.at(**dict(base.point(rank)))))
