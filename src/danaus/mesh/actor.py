"""`Actor`: the base class of what users run on a mesh."""

from typing import TYPE_CHECKING

from danaus.mesh.algebra import MeshAlgebra
from danaus.topology import Region

if TYPE_CHECKING:
    from danaus.runtime.future import Future

    class _MeshFace(MeshAlgebra):
        """What `spawn` returns is declared as the actor's class, so that endpoints are typed; it has these as well."""

        @property
        def region(self) -> Region: ...
        @property
        def initialized(self) -> Future[None]: ...
        def stop(self, timeout_s: float | None = None, *, now: bool = False) -> Future[None]: ...
else:
    _MeshFace = object

MESH_NAMES = frozenset(name for name in dir(MeshAlgebra) if not name.startswith("_")) | {"initialized", "stop"}
"""Names that belong to the mesh, so no endpoint can have one of them."""


class Actor(_MeshFace):
    """State in a proc, with endpoints that are called from afar. Subclass it, and decorate methods with `endpoint`.

    Two hooks may be defined, plain or `async`:
        `__supervise__(self, failure)`: something this actor owns failed; return True if that is dealt with.
        `__cleanup__(self, error)`: the actor ends; `error` is None unless it failed.
    """
