"""Every exception of Danaus, one tree, and `Failure`, the value that says what died and why.

Error
|- ConfigError             a setting or an argument is not usable
|- SpawnError              a proc or actor could not be started
|- NotPicklable            an argument, result or exception cannot travel
|- DeliveryError           never arrived: safe to resend
|  |- Unreachable          no link to the peer could be opened
|  |- MailboxFull          no credit to send before the deadline
|  |- MeshFailed           the target was dead before it took the message
|  |- MeshStopped          the target was stopped on purpose
|  '- StaleIncarnation     meant for an earlier life of the target
|- ReplyLost               may have run: resend only if idempotent
|- ActorFailed             user code raised and the exception itself cannot travel
|- CallError               one or more ranks of a `call` failed
|- CallTimeout             the deadline of a call passed
|- CallCancelled           somebody cancelled the future
|- WrongThread             a blocking wait where it would deadlock
'- ProtocolError
   |- LocalProtocolError   we broke the protocol
   '- RemoteProtocolError  the peer broke the protocol
      |- AuthenticationFailed
      '- VersionMismatch
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Failure:
    """What died or raised, where, and why. Prints as one block; `to_dict()` is for machines."""

    kind: str
    """"proc_exited", "constructor_raised", "endpoint_raised", "actor_exited", "host_lost" or "link_lost"."""
    mesh: str
    """Name of the mesh that lost a rank."""
    rank: int
    """Rank within that mesh."""
    point: Mapping[str, int]
    cause: str
    """One sentence: exit code, signal by name, or the exception's type and text."""
    class_name: str = ""
    endpoint: str = ""
    host: str = ""
    pid: int = 0
    exit_code: int | None = None
    signal: str | None = None
    stderr_tail: tuple[str, ...] = ()
    traceback: str = ""
    chain: tuple[str, ...] = ()
    """Owners that did not handle it, nearest first."""

    @property
    def where(self) -> str:
        """The mesh and the point in it, as `trainer[gpus=3]`."""
        coords = ",".join(f"{axis}={index}" for axis, index in self.point.items())
        return f"{self.mesh}[{coords}]" if coords else self.mesh

    def escalated(self, owner: str) -> "Failure":
        """The same failure after `owner` declined to handle it."""
        return replace(self, chain=(*self.chain, owner))

    def to_dict(self) -> dict[str, object]:
        """All fields as plain types, ready for JSON."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields["point"] = dict(self.point)
        fields["stderr_tail"] = list(self.stderr_tail)
        fields["chain"] = list(self.chain)
        return fields

    def __str__(self) -> str:
        what = f"{self.where}" + (f" ({self.class_name})" if self.class_name else "")
        place = f"pid {self.pid}" if self.pid else ""
        if self.host:
            place = f"{place} on {self.host}" if place else f"on {self.host}"
        lines = [f"{what}: {self.cause}"]
        if self.endpoint:
            lines.append(f"  endpoint: {self.endpoint}")
        if place:
            lines.append(f"  where: {place}")
        if self.chain:
            lines.append(f"  not handled by: {' -> '.join(self.chain)}")
        if self.traceback:
            lines.append("  remote traceback:")
            lines.extend(f"    {line}" for line in self.traceback.rstrip().splitlines())
        if self.stderr_tail:
            lines.append("  last lines of stderr:")
            lines.extend(f"    {line}" for line in self.stderr_tail)
        return "\n".join(lines)


class Error(Exception):
    """Base of everything Danaus raises."""


class ConfigError(Error, ValueError):
    """A setting or an argument is not usable; the text names it and what would be."""


class SpawnError(Error):
    """A proc or actor could not be started."""


class NotPicklable(Error, TypeError):
    """A value cannot travel to another proc. `path` leads to the part that cannot."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return (
            f"{self.path} cannot be pickled: {self.reason}; send what it is made from, or give its class a __reduce__"
        )


class DeliveryError(Error):
    """The message never arrived, so nothing ran: it is safe to send again."""


class Unreachable(DeliveryError):
    """No link to the peer could be opened within `waited_s` seconds."""

    def __init__(self, address: str, waited_s: float, reason: str = "") -> None:
        super().__init__(address, waited_s, reason)
        self.address, self.waited_s, self.reason = address, waited_s, reason

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        return (
            f"no answer from {self.address} after {self.waited_s:g} s{why}; "
            f"check that the host is up, or raise connect_timeout_s"
        )


class MailboxFull(DeliveryError):
    """The receiver gave no credit to send within the call's deadline."""


class MeshFailed(DeliveryError):
    """The target was dead before it took the message. `failure` says of what."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return f"the target is dead and nothing ran: {self.failure}"


class MeshStopped(DeliveryError):
    """The target was stopped on purpose before it took the message."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.target = target

    def __str__(self) -> str:
        return f"{self.target} was stopped; spawn it again to use it"


class StaleIncarnation(DeliveryError):
    """The message meant an earlier life of the target; send it again to reach the new one."""

    def __init__(self, target: str, meant: int, current: int) -> None:
        super().__init__(target, meant, current)
        self.target, self.meant, self.current = target, meant, current

    def __str__(self) -> str:
        return f"{self.target} is now in life {self.current}, the message meant {self.meant}; send it again"


class ReplyLost(Error):
    """The target died after it may have begun to run the call: resend only if that is idempotent."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return f"no reply will come, the call may have run: {self.failure}"


class ActorFailed(Error):
    """User code raised. Carries the exception's type name, its text and the remote traceback."""

    def __init__(self, type_name: str, text: str, traceback: str) -> None:
        super().__init__(type_name, text, traceback)
        self.type_name, self.text, self.traceback = type_name, text, traceback

    def __str__(self) -> str:
        return f"{self.type_name}: {self.text}\n{self.traceback}".rstrip()


class CallError(Error):
    """Some ranks of a call failed.

    Attributes:
        failures: point of each rank that failed so far -> its exception.
        results: point of each rank that had answered -> its value.
        pending: points that had neither answered nor failed; they keep running, their replies are dropped.
    """

    def __init__(
        self,
        call: str,
        failures: Mapping[Mapping[str, int], BaseException],
        results: Mapping[Mapping[str, int], object],
        pending: Sequence[Mapping[str, int]],
    ) -> None:
        super().__init__(call, failures, results, pending)
        self.call, self.failures, self.results, self.pending = call, failures, results, pending

    def __str__(self) -> str:
        total = len(self.failures) + len(self.results) + len(self.pending)
        head = f"{self.call}: {len(self.failures)} of {total} ranks failed, {len(self.results)} answered"
        head += f", {len(self.pending)} were still running" if self.pending else ""
        blocks = [head]
        for point, error in self.failures.items():
            coords = ", ".join(f"{axis}={index}" for axis, index in point.items()) or "the only rank"
            text = f"{type(error).__name__}: {error}"
            remote = error.__cause__
            if isinstance(remote, ActorFailed):
                text = str(remote)
            blocks.append(f"  {coords}:\n" + "\n".join(f"    {line}" for line in text.splitlines()))
        return "\n".join(blocks)


class CallTimeout(Error, TimeoutError):
    """The deadline given with `options(timeout_s=)` passed before every rank had answered."""

    def __init__(self, call: str, timeout_s: float, pending: Sequence[str]) -> None:
        super().__init__(call, timeout_s, pending)
        self.args = (call, timeout_s, pending)  # OSError takes the third for a file name
        self.call, self.timeout_s, self.pending = call, timeout_s, pending

    def __str__(self) -> str:
        shown = ", ".join(self.pending[:8]) + (" ..." if len(self.pending) > 8 else "")
        return f"{self.call} had no answer from {shown} within {self.timeout_s:g} s; it was cancelled there"


class CallCancelled(Error):
    """The future was cancelled before it had a result; the actor was told."""


class WrongThread(Error, RuntimeError):
    """A blocking wait on a thread that must not block; `await` instead."""


class ProtocolError(Error):
    """The rules two procs talk by were broken."""


class LocalProtocolError(ProtocolError):
    """This side broke the protocol: a bug in Danaus."""


class RemoteProtocolError(ProtocolError):
    """The peer broke the protocol: not a Danaus process, or a damaged stream."""


class AuthenticationFailed(RemoteProtocolError):
    """The peer did not prove that it holds the job's secret; nothing of it was unpickled."""


class VersionMismatch(RemoteProtocolError):
    """The two sides cannot understand each other."""

    def __init__(self, what: str, ours: str, theirs: str) -> None:
        super().__init__(what, ours, theirs)
        self.what, self.ours, self.theirs = what, ours, theirs

    def __str__(self) -> str:
        return f"{self.what} differs: {self.ours} here, {self.theirs} there; install the same version on both"
