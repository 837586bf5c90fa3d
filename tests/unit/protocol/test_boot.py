"""What a child process reads first."""

import msgspec
import pytest

from danaus.config import Settings
from danaus.errors import RemoteProtocolError
from danaus.protocol.boot import AgentBoot, ProcBoot, decode_boot, encode_boot

AGENT_BOOT = AgentBoot(
    id="h1",
    secret=bytes(range(32)),
    settings={"transport": "unix", "connect_timeout_s": 30.0, "stderr_tail_lines": 20},
    address="unix:/agent",
    sockets="/sockets",
    client="c1.0",
    client_address="unix:/client",
    client_pid=7,
)
PROC_BOOT = ProcBoot(
    id="p1.3",
    name="trainers",
    secret=bytes(range(32)),
    agent="h1 unix:/agent",
    settings={"transport": "tcp"},
    sys_path=("", "/lib"),
    directory="/work",
    address="tcp:127.0.0.1:7",
    sockets="/sockets",
    procs=b"\0ref",
    owner="c1.0",
    owner_agent="h1 unix:/agent",
    bootstrap=b"\0pickle",
    code=(("digest", b"definition"),),
)


def test_what_a_parent_writes_is_what_a_child_reads() -> None:
    assert decode_boot(encode_boot(AGENT_BOOT), AgentBoot) == AGENT_BOOT
    assert decode_boot(encode_boot(PROC_BOOT), ProcBoot) == PROC_BOOT


def test_the_settings_of_the_parent_are_those_of_the_child() -> None:
    chosen = Settings(transport="tcp", verdict_timeout_s=0.5, stderr_tail_lines=7)
    values = {name: getattr(chosen, name) for name in chosen.__slots__}
    boot = msgspec.structs.replace(AGENT_BOOT, settings=values)
    assert Settings(**decode_boot(encode_boot(boot), AgentBoot).settings) == chosen


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no boot",
        encode_boot(PROC_BOOT)[:-1],
        encode_boot(AGENT_BOOT),
        msgspec.msgpack.encode({**msgspec.to_builtins(PROC_BOOT), "secret": 5}),
        b"\x81\xa3new" + b"\x91" * 200_000,
    ],
)
def test_anything_else_names_the_boot_that_was_expected(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="the parent process sent no ProcBoot"):
        decode_boot(body, ProcBoot)
