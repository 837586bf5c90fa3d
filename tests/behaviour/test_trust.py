"""Semantics 28: nothing is unpickled before the peer has proved the job's secret."""

import os
import pickle
import socket
import stat
from pathlib import Path

import psutil
import pytest

from behaviour.actors import Echo
from behaviour.conftest import Cluster
from danaus.config import PROTOCOL, VERSION
from danaus.protocol.frame import encode_frame
from danaus.protocol.handshake import Handshake, Versions
from danaus.protocol.message import NO_REPLY, Cast, Code, SpawnProcs, encode_message

MINE = Versions(PROTOCOL, VERSION, "3.11.0")


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


class Stranger:
    """A connection that speaks the protocol by hand."""

    def __init__(self, address: str) -> None:
        scheme, _, rest = address.partition(":")
        if scheme == "unix":
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(rest)
        else:
            host, _, port = rest.partition(":")
            self.sock = socket.create_connection((host, int(port)))
        self.sock.settimeout(20)

    def send(self, header: bytes, payload: bytes = b"") -> None:
        self.sock.sendall(b"".join(encode_frame(header, payload)))

    def hang_up_seen(self) -> bool:
        """Whether the other side ends the connection, after whatever it has to say."""
        try:
            while self.sock.recv(65536):
                continue
        except ConnectionResetError:
            pass
        self.sock.close()
        return True


def addresses(cluster: Cluster, procs: object) -> dict[str, str]:
    """Where the client, the agent and a proc listen."""
    proc = cluster.proc
    peer = next(link for link in proc.links if link.peer.startswith(procs.ref.id))  # type: ignore[attr-defined]
    return {"client": proc.links.address, "agent": proc.identity.agent.address, "proc": peer.address}


def attack(stranger: Stranger, how: str, bomb: bytes) -> None:
    """Try to have `bomb` unpickled, or to break what listens."""
    cast = encode_message(Cast("c.0", "a", "echo", ((0, 1, 0),), NO_REPLY, b""))
    match how:
        case "no handshake":
            stranger.send(cast, bomb)
        case "wrong secret":
            handshake = Handshake(b"guess" * 8, "c1.0", nonce=os.urandom(32), initiator=True, versions=MINE)
            for hello in handshake.start():
                stranger.send(hello)
            stranger.send(cast, bomb)
        case "echoed proof":
            stranger.sock.sendall(stranger.sock.recv(65536))
            stranger.send(cast, bomb)
        case "garbage":
            stranger.sock.sendall(os.urandom(100_000))
        case "http":
            stranger.sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        case "huge frame":
            stranger.sock.sendall(encode_frame(b"x")[0][:4] + b"\xff" * 12)
        case "many buffers":
            stranger.sock.sendall(b"\x01\xda\xff\xff" + b"\x00" * 12)
        case "pickle":
            stranger.sock.sendall(bomb)
        case "other messages":
            stranger.send(encode_message(Code("x")), bomb)
            stranger.send(
                encode_message(SpawnProcs("p", "p", (0,), b"", b"", {}, (), "/", "c.0", "h x")),
                bomb,
            )


@pytest.mark.parametrize("target", ["client", "agent", "proc"])
def test_a_stranger_gets_nothing_run_and_breaks_nothing(real_cluster: Cluster, tmp_path: Path, target: str) -> None:
    procs = real_cluster.hosts.spawn_procs()
    echo = procs.spawn("echo", Echo)
    echo.echo.call_one(0).get(20)
    address = addresses(real_cluster, procs)[target]
    trap = tmp_path / "exploded"
    bomb = pickle.dumps(Bomb(trap))
    for how in (
        "no handshake",
        "wrong secret",
        "echoed proof",
        "garbage",
        "http",
        "huge frame",
        "many buffers",
        "pickle",
        "other messages",
    ):
        stranger = Stranger(address)
        try:
            attack(stranger, how, bomb)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was cut off before it had finished
        assert stranger.hang_up_seen(), how
        assert echo.echo.call_one(how).get(20) == how
    assert not trap.exists()
    assert real_cluster.hosts.spawn_procs().spawn("echo", Echo).echo.call_one(1).get(20) == 1


def test_a_stranger_that_says_nothing_holds_nobody_up(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs()
    echo = procs.spawn("echo", Echo)
    echo.echo.call_one(0).get(20)
    silent = [Stranger(address) for address in addresses(real_cluster, procs).values() for _ in range(20)]
    assert echo.echo.call_one(1).get(20) == 1
    assert real_cluster.hosts.spawn_procs().spawn("echo", Echo).echo.call_one(2).get(20) == 2
    for stranger in silent:
        stranger.sock.close()


def test_another_version_is_told_what_differs(real_cluster: Cluster) -> None:
    stranger = Stranger(real_cluster.proc.links.address)
    older = Versions(PROTOCOL, "0.0.1", "3.11.0")
    handshake = Handshake(b"x" * 32, "c1.0", nonce=os.urandom(32), initiator=True, versions=older)
    for hello in handshake.start():
        stranger.send(hello)
    said = b""
    while data := stranger.sock.recv(65536):
        said += data
    stranger.sock.close()
    assert b"0.0.1" in said
    assert VERSION.encode() in said


def test_sockets_are_in_a_directory_of_the_own_user(real_cluster: Cluster) -> None:
    if real_cluster.wire != "unix":
        assert real_cluster.proc.links.address.startswith("tcp:127.0.0.1:")
        return
    directory = Path(real_cluster.proc.links.address.removeprefix("unix:")).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert directory.stat().st_uid == os.geteuid()


def test_the_secret_is_in_no_argument_variable_or_file(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs()
    procs.spawn("echo", Echo).echo.call_one(0).get(20)
    secret = real_cluster.proc.identity.secret
    assert len(secret) >= 32
    forms = (secret, secret.hex().encode())
    seen = 0
    for process in psutil.Process().children(recursive=True):
        with (
            open(f"/proc/{process.pid}/cmdline", "rb") as cmdline,
            open(f"/proc/{process.pid}/environ", "rb") as environ,
        ):
            text = cmdline.read() + environ.read()
        assert not any(form in text for form in forms)
        seen += 1
    assert seen >= 3  # guard, agent, proc
    if real_cluster.wire == "unix":
        directory = Path(real_cluster.proc.links.address.removeprefix("unix:")).parent
        assert all(stat.S_ISSOCK(path.stat().st_mode) for path in directory.iterdir())
