"""Every message that travels between procs and agents: the header of a frame. Decided once, for all transports.

User data (arguments, results, exceptions, code) is never in a header: it is the payload of the frame, opaque here.
"""

from typing import NewType

import msgspec

from danaus.errors import Failure, RemoteProtocolError

ProcId = NewType("ProcId", str)
"""`<mesh id>.<rank>`: one process of a mesh. Agents and clients have one too."""
MeshId = NewType("MeshId", str)
OriginId = NewType("OriginId", str)
"""Who numbers messages: a client's proc id, or `<proc id>/<actor mesh id>`."""
CallId = int

NO_REPLY: CallId = 0


def proc_id(mesh: str, rank: int) -> ProcId:
    """The id of rank `rank` of the proc mesh `mesh`."""
    return ProcId(f"{mesh}.{rank}")


def split_proc_id(proc: str) -> tuple[MeshId, int]:
    """The mesh id and rank of a proc id."""
    mesh, _, rank = proc.rpartition(".")
    return MeshId(mesh), int(rank)


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all headers."""


class Cast(Message, frozen=True, array_like=True, gc=False, tag=1):
    """Run an endpoint on some ranks of an actor mesh. Payload: the pickled arguments."""

    origin: str
    actor: str
    """Id of the actor mesh."""
    endpoint: str
    runs: tuple[tuple[int, int, int], ...]
    """(first base rank, how many, number): the destinations below the receiver and their sequence numbers."""
    call: CallId
    """Reply port at the origin's proc; 0 asks for no reply."""
    region: bytes
    """Wire form of the region that was called, from which the message's point is told."""
    incarnation: int = 0
    time_left_s: float | None = None
    chain: tuple[str, ...] = ()
    """Calls on whose behalf this one runs, outermost first."""
    code: tuple[str, ...] = ()
    """Ids of code sent by value that the payload refers to."""


class Raised(msgspec.Struct, frozen=True, array_like=True):
    """What an endpoint raised. The exception itself is the payload of the reply, when it can be pickled."""

    type_name: str
    text: str
    traceback: str


class Refused(msgspec.Struct, frozen=True, array_like=True):
    """Why a message was not run: "dead", "stopped", "stale", "expired" or "unreachable"."""

    kind: str
    text: str = ""
    failure: Failure | None = None
    key: str = ""
    """Names the failure, so that one death is told once however many ways its news take."""


class Reply(Message, frozen=True, array_like=True, gc=False, tag=2):
    """The answer of one rank. Payload: the pickled value or exception."""

    call: CallId
    rank: int
    raised: Raised | None = None
    refused: Refused | None = None
    code: tuple[str, ...] = ()


class Cancel(Message, frozen=True, array_like=True, gc=False, tag=3):
    """The caller no longer wants `call`: withdraw it, or cancel it if it runs and can be cancelled.

    Where the message has not come, it is a gap: neither a late nor a lost message holds up what follows.
    """

    origin: str
    actor: str
    call: CallId
    number: int


class Gap(Message, frozen=True, array_like=True, gc=False, tag=4):
    """Numbers `first` to `last` of `origin` to `actor` will never come."""

    origin: str
    actor: str
    rank: int
    first: int
    last: int


class Code(Message, frozen=True, array_like=True, gc=False, tag=5):
    """Code sent by value, once per link, before the first message that needs it. Payload: the pickled definition."""

    id: str


class SpawnActor(Message, frozen=True, array_like=True, gc=False, tag=6):
    """Construct one rank of an actor mesh. Payload: pickled (class, args, kwargs)."""

    actor: str
    name: str
    class_name: str
    rank: int
    region: bytes
    """Wire form of the region it was spawned on."""
    procs: bytes
    """Wire form of the proc mesh it belongs to."""
    owner: str
    """Origin id of the owner."""
    owner_agent: str
    call: CallId
    incarnation: int = 0
    code: tuple[str, ...] = ()


class StopActor(Message, frozen=True, array_like=True, gc=False, tag=7):
    """Drain, stop children, clean up, end. Replied to when done."""

    actor: str
    rank: int
    call: CallId
    timeout_s: float
    now: bool = False


class Told(Message, frozen=True, array_like=True, gc=False, tag=8):
    """To the proc of an owner: a rank of a mesh it owns failed."""

    owner: str
    mesh: str
    rank: int
    key: str
    failure: Failure


class SpawnProcs(Message, frozen=True, array_like=True, gc=False, tag=21):
    """To an agent: start procs `ranks` of a mesh. Payload: the pickled bootstrap callable, if any."""

    mesh: str
    name: str
    ranks: tuple[int, ...]
    region: bytes
    procs: bytes
    environ: dict[str, str]
    sys_path: tuple[str, ...]
    directory: str
    owner: str
    owner_agent: str


class StopProcs(Message, frozen=True, array_like=True, gc=False, tag=22):
    """To an agent: see to it that procs end. Replied to when they are gone.

    Unless `now`, the sender itself has told them to drain.
    """

    mesh: str
    ranks: tuple[int, ...]
    call: CallId
    timeout_s: float
    now: bool = False


class Resolve(Message, frozen=True, array_like=True, gc=False, tag=23):
    """To an agent: where does `proc` listen? Answered by `Resolved` or `ProcExited`."""

    proc: str


class Resolved(Message, frozen=True, array_like=True, gc=False, tag=24):
    """Where `proc` listens."""

    proc: str
    address: str


class ProcExited(Message, frozen=True, array_like=True, gc=False, tag=25):
    """From an agent to all it is linked to: `proc` is gone. `planned` when it was stopped on purpose."""

    proc: str
    planned: bool
    failure: Failure


class Output(Message, frozen=True, array_like=True, gc=False, tag=26):
    """Lines a proc wrote. Payload: the bytes, whole lines."""

    proc: str
    stream: int
    """1 for stdout, 2 for stderr."""


class ProcReady(Message, frozen=True, array_like=True, gc=False, tag=27):
    """From a proc to its agent: the bootstrap ran, or raised."""

    raised: Raised | None = None


class Ping(Message, frozen=True, array_like=True, gc=False, tag=30):
    """To a proc: answer once the bootstrap has run."""

    call: CallId
    rank: int


class Drain(Message, frozen=True, array_like=True, gc=False, tag=28):
    """To a proc: stop all actors, then exit. From its agent, or from who stops it, behind what that one sent before.

    From a proc to its agent: it does so now, on purpose.
    """

    timeout_s: float
    now: bool = False


class Leave(Message, frozen=True, array_like=True, gc=False, tag=29):
    """From a client to its agent: stop everything I started, and end. From the agent back: done."""

    timeout_s: float


type_union = (
    Cast | Reply | Cancel | Gap | Code | SpawnActor | StopActor | Told | SpawnProcs | StopProcs
    | Resolve | Resolved | ProcExited | Output | ProcReady | Drain | Leave | Ping
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(type_union)

encode_message = _encoder.encode


def decode_message(header: bytes | memoryview) -> Message:
    """The message in a frame's header; anything else raises `RemoteProtocolError`."""
    try:
        return _decoder.decode(header)
    except (ValueError, RecursionError) as error:  # msgspec's own are ValueErrors; deep nesting is the other
        raise RemoteProtocolError(f"the header of a frame is not a message: {error}") from error
