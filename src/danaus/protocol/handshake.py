"""`Handshake`: each side proves that it holds the job's secret and runs the same versions, before anything is believed.

Both sides send `Hello` at once and answer the peer's with `Proof`: one round trip. `Hello` keeps its first fields
for good, so that any two versions can tell that they differ.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import assert_never

import msgspec

from danaus.errors import AuthenticationFailed, ConfigError, RemoteProtocolError, VersionMismatch

MAGIC = "danaus"
NONCE_BYTES = 32
MAX_MESSAGE_BYTES = 4096
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class Versions:
    """What both sides must share: the same protocol and Danaus, and the same minor version of Python."""

    protocol: int
    danaus: str
    python: str
    """As "3.11.9"; the part after the second dot may differ."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Who the sender says it is. `peer` is its proc id."""

    magic: str
    protocol: int
    danaus: str
    python: str
    peer: str
    nonce: bytes


class Proof(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """HMAC-SHA256 by the job's secret over the sender's role and both hellos."""

    mac: bytes


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Why the sender closes the link: kind "secret", "version" or "protocol"."""

    kind: str
    reason: str
    """For "version", what differs."""
    here: str = ""
    """For "version", the one of the sender."""
    there: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Hello | Proof | Refused)


class _State(Enum):
    NEW = auto()
    AWAIT_HELLO = auto()
    AWAIT_PROOF = auto()
    DONE = auto()
    FAILED = auto()


class Handshake:
    """One side of the opening of a link. When `receive` raises, send `refusal`, if there is one, and close."""

    def __init__(self, secret: bytes, me: str, *, nonce: bytes, initiator: bool, versions: Versions) -> None:
        """Prepare one side.

        Args:
            secret: the job's, best 32 random bytes: who records a handshake can try guesses of a short one.
            me: proc id of this side.
            nonce: 32 random bytes, never used before.
            initiator: whether this side opened the link.
            versions: of this side.

        Raises:
            ConfigError: the secret is empty.
        """
        if not secret:
            raise ConfigError("the job's secret is empty, so it proves nothing; give the job 32 random bytes")
        assert len(nonce) == NONCE_BYTES
        self.peer = ""
        """Proc id of the other side. Proved only once `done`."""
        self.refusal: bytes | None = None
        """What to send before closing, after `receive` raised."""
        self._secret, self._initiator, self._versions, self._nonce = secret, initiator, versions, nonce
        self._hello = _encode(Hello(MAGIC, versions.protocol, versions.danaus, versions.python, me, nonce))
        self._peer_hello = b""
        self._state = _State.NEW

    @property
    def done(self) -> bool:
        """Whether the peer has proved that it holds the secret."""
        return self._state is _State.DONE

    def start(self) -> Sequence[bytes]:
        """The messages to send as soon as the link is open."""
        assert self._state is _State.NEW
        self._state = _State.AWAIT_HELLO
        return [self._hello]

    def receive(self, message: bytes | bytearray | memoryview) -> Sequence[bytes]:
        """Take one message of the peer; the messages to send now.

        Raises:
            AuthenticationFailed: the peer does not hold the secret.
            VersionMismatch: protocol, Danaus or the minor version of Python differ.
            RemoteProtocolError: the peer is no Danaus, or sent something malformed, too large or out of turn.
        """
        assert self._state is not _State.NEW
        if self._state is _State.FAILED:
            raise RemoteProtocolError("a message came after the handshake had failed")
        if len(message) > MAX_MESSAGE_BYTES:
            raise self._fail(f"a handshake message has {len(message)} bytes, at most {MAX_MESSAGE_BYTES} are allowed")
        try:
            received = _decoder.decode(message)
        # msgspec's errors are ValueErrors, as is that of invalid UTF-8; deep nesting is a RecursionError.
        except (ValueError, RecursionError) as error:
            raise self._fail(f"the peer is not a Danaus process, or the stream is damaged: {error}") from error
        match received:
            case Hello():
                return self._receive_hello(received, bytes(message))
            case Proof():
                return self._receive_proof(received)
            case Refused():
                raise self._refused_by_peer(received)
            case _ as unreachable:
                assert_never(unreachable)

    def _receive_hello(self, hello: Hello, encoded: bytes) -> Sequence[bytes]:
        if self._state is not _State.AWAIT_HELLO:
            raise self._fail("the peer said hello twice")
        if hello.magic != MAGIC:
            raise self._fail("the peer is not a Danaus process")
        ours = self._versions
        if hello.protocol != ours.protocol:
            raise self._fail_version("the protocol", str(ours.protocol), str(hello.protocol))
        if hello.danaus != ours.danaus:
            raise self._fail_version("the version of Danaus", ours.danaus, hello.danaus)
        if _minor(hello.python) != _minor(ours.python):
            raise self._fail_version("the version of Python", ours.python, hello.python)
        if len(hello.nonce) != NONCE_BYTES:
            raise self._fail(f"the peer's nonce has {len(hello.nonce)} bytes instead of {NONCE_BYTES}")
        if not hello.peer or hello.peer != _shown(hello.peer):
            raise self._fail("the peer's id is empty, too long or not printable")
        if hello.nonce == self._nonce:
            raise self._fail_secret("the peer sent our own hello back")
        self.peer, self._peer_hello = hello.peer, encoded
        self._state = _State.AWAIT_PROOF
        return [_encode(Proof(self._mac(by_initiator=self._initiator)))]

    def _receive_proof(self, proof: Proof) -> Sequence[bytes]:
        if self._state is not _State.AWAIT_PROOF:
            raise self._fail("the peer sent a proof out of turn")
        if not hmac.compare_digest(proof.mac, self._mac(by_initiator=not self._initiator)):
            raise self._fail_secret(f"{self.peer} did not prove that it holds this job's secret")
        self._state = _State.DONE
        return ()

    def _refused_by_peer(self, refused: Refused) -> RemoteProtocolError:
        self._state = _State.FAILED
        reason = _shown(refused.reason)
        if refused.kind == "version":
            return VersionMismatch(reason, _shown(refused.there), _shown(refused.here))
        if refused.kind == "secret":
            return AuthenticationFailed(f"the peer refused this link: {reason}; give both sides the secret of one job")
        return RemoteProtocolError(f"the peer refused this link: {reason}")

    def _mac(self, *, by_initiator: bool) -> bytes:
        """Covers all that both said; the role keeps a proof from being sent back as the answer to itself."""
        role = b"danaus handshake: initiator" if by_initiator else b"danaus handshake: acceptor"
        hellos = (self._hello, self._peer_hello) if self._initiator else (self._peer_hello, self._hello)
        parts = (role, *hellos)
        return hmac.digest(self._secret, b"".join(len(part).to_bytes(4, "big") + part for part in parts), "sha256")

    def _fail(self, reason: str) -> RemoteProtocolError:
        self._refuse(Refused("protocol", _shown(reason)))
        return RemoteProtocolError(reason)

    def _fail_secret(self, reason: str) -> AuthenticationFailed:
        self._refuse(Refused("secret", "it takes a proof of this job's secret"))
        return AuthenticationFailed(f"{reason}; give both sides the secret of one job")

    def _fail_version(self, what: str, ours: str, theirs: str) -> VersionMismatch:
        self._refuse(Refused("version", what, here=_shown(ours), there=_shown(theirs)))
        return VersionMismatch(what, ours, _shown(theirs))

    def _refuse(self, refused: Refused) -> None:
        self._state = _State.FAILED
        self.refusal = _encode(refused)


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _shown(text: str) -> str:
    """`text` of a peer not yet trusted, short and printable enough for an error or a log."""
    return "".join(char if char.isprintable() else "?" for char in text[:_MAX_TEXT])
