"""The public names of Danaus, each loaded on first use so that `import danaus` costs next to nothing."""

# Type checkers take this for `typing.TYPE_CHECKING`; importing typing would cost more than all else here.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from danaus.config import Settings
    from danaus.errors import (
        ActorFailed,
        AuthenticationFailed,
        CallCancelled,
        CallError,
        CallTimeout,
        ConfigError,
        DeliveryError,
        Error,
        Failure,
        LocalProtocolError,
        MailboxFull,
        MeshFailed,
        MeshStopped,
        NotPicklable,
        ProtocolError,
        RemoteProtocolError,
        ReplyLost,
        SpawnError,
        StaleIncarnation,
        Unreachable,
        VersionMismatch,
        WrongThread,
    )
    from danaus.mesh.actor import Actor
    from danaus.mesh.actor_mesh import ActorMesh
    from danaus.mesh.client import on_unhandled_failure, shutdown
    from danaus.mesh.context import context, current_rank, current_size, this_proc
    from danaus.mesh.endpoint import endpoint
    from danaus.mesh.host_mesh import HostMesh, this_host
    from danaus.mesh.proc_mesh import ProcMesh
    from danaus.mesh.value_mesh import ValueMesh
    from danaus.runtime.future import Future
    from danaus.topology import Extent, Point, Region

__version__ = "0.1.0"

# Public name -> the module under danaus it lives in.
_HOMES = {
    "Actor": "mesh.actor",
    "ActorFailed": "errors",
    "ActorMesh": "mesh.actor_mesh",
    "AuthenticationFailed": "errors",
    "CallCancelled": "errors",
    "CallError": "errors",
    "CallTimeout": "errors",
    "ConfigError": "errors",
    "DeliveryError": "errors",
    "Error": "errors",
    "Extent": "topology",
    "Failure": "errors",
    "Future": "runtime.future",
    "HostMesh": "mesh.host_mesh",
    "LocalProtocolError": "errors",
    "MailboxFull": "errors",
    "MeshFailed": "errors",
    "MeshStopped": "errors",
    "NotPicklable": "errors",
    "Point": "topology",
    "ProcMesh": "mesh.proc_mesh",
    "ProtocolError": "errors",
    "Region": "topology",
    "RemoteProtocolError": "errors",
    "ReplyLost": "errors",
    "Settings": "config",
    "SpawnError": "errors",
    "StaleIncarnation": "errors",
    "Unreachable": "errors",
    "ValueMesh": "mesh.value_mesh",
    "VersionMismatch": "errors",
    "WrongThread": "errors",
    "context": "mesh.context",
    "current_rank": "mesh.context",
    "current_size": "mesh.context",
    "endpoint": "mesh.endpoint",
    "on_unhandled_failure": "mesh.client",
    "shutdown": "mesh.client",
    "this_host": "mesh.host_mesh",
    "this_proc": "mesh.context",
}

__all__ = [  # literal, because type checkers read it; a test keeps it equal to the table
    "Actor",
    "ActorFailed",
    "ActorMesh",
    "AuthenticationFailed",
    "CallCancelled",
    "CallError",
    "CallTimeout",
    "ConfigError",
    "DeliveryError",
    "Error",
    "Extent",
    "Failure",
    "Future",
    "HostMesh",
    "LocalProtocolError",
    "MailboxFull",
    "MeshFailed",
    "MeshStopped",
    "NotPicklable",
    "Point",
    "ProcMesh",
    "ProtocolError",
    "Region",
    "RemoteProtocolError",
    "ReplyLost",
    "Settings",
    "SpawnError",
    "StaleIncarnation",
    "Unreachable",
    "ValueMesh",
    "VersionMismatch",
    "WrongThread",
    "__version__",
    "context",
    "current_rank",
    "current_size",
    "endpoint",
    "on_unhandled_failure",
    "shutdown",
    "this_host",
    "this_proc",
]

if not TYPE_CHECKING:  # a checker that saw __getattr__ would accept every misspelt name

    def __getattr__(name):
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'danaus' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(f"danaus.{home}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
