"""Headers: every message survives the way, and nothing else is taken for one."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.errors import Failure, RemoteProtocolError
from danaus.protocol import message as messages
from danaus.protocol.message import (
    Cancel,
    Cast,
    Code,
    Drain,
    Gap,
    Leave,
    Message,
    Output,
    Ping,
    ProcExited,
    ProcReady,
    Raised,
    Refused,
    Reply,
    Resolve,
    Resolved,
    SpawnActor,
    SpawnProcs,
    StopActor,
    StopProcs,
    Told,
    decode_message,
    encode_message,
    proc_id,
    split_proc_id,
)

FAILURE = Failure(
    kind="proc_exited",
    mesh="trainers",
    rank=3,
    point={"gpus": 3},
    cause="killed by SIGKILL",
    class_name="Trainer",
    endpoint="step",
    host="node",
    pid=7,
    exit_code=None,
    signal="SIGKILL",
    stderr_tail=("one", "zwei ü"),
    traceback="Traceback ...",
    chain=("owner",),
)

EXAMPLES: list[Message] = [
    Cast("c1.0", "a1", "step", ((0, 4, 7), (6, 1, 2)), 5, b"\0region"),
    Cast("c1.0/a0", "a1", "step", ((0, 1, 1 << 62),), 0, b"", 3, 1.5, ("c1.0:1", "p1.0:2"), ("code",)),
    Reply(5, 3),
    Reply(5, 3, raised=Raised("ValueError", "text", "Traceback ..."), code=("code",)),
    Reply(5, 3, refused=Refused("dead", "text", FAILURE, "p1.3")),
    Cancel("c1.0", "a1", 5, 9),
    Gap("c1.0", "a1", 0, 3, 1 << 40),
    Code("digest"),
    SpawnActor("a1", "trainer", "Trainer", 3, b"region", b"procs", "c1.0", "h1 unix:/agent", 5, 2, ("code",)),
    StopActor("a1", 3, 5, 10.0, now=True),
    Told("c1.0/a0", "a1", 3, "key", FAILURE),
    SpawnProcs(
        "p1", "procs", (0, 1, 2), b"region", b"ref", {"A": "1", "": "ü"}, ("/one", ""), "/tmp", "c1.0", "h1 unix:/agent"
    ),
    StopProcs("p1", (0, 2), 5, 0.0, now=True),
    Resolve("p1.3"),
    Resolved("p1.3", "unix:/socket"),
    ProcExited("p1.3", True, FAILURE),
    Output("p1.3", 2),
    ProcReady(),
    ProcReady(Raised("RuntimeError", "", "")),
    Drain(10.0, now=True),
    Leave(10.0),
    Ping(5, 3),
]


def header(*fields: object) -> bytes:
    """As a peer may have sent it."""
    return msgspec.msgpack.encode(fields)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    arrived = decode_message(encode_message(message))
    assert arrived == message
    assert type(arrived) is type(message)


def test_no_message_is_left_out_here() -> None:
    assert {type(example) for example in EXAMPLES} == set(get_args(messages.type_union))
    declared = {each for each in vars(messages).values() if isinstance(each, type) and issubclass(each, Message)} - {
        Message
    }
    assert declared == set(get_args(messages.type_union))


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_field_added_at_the_end_is_ignored_by_those_that_do_not_know_it(message: Message) -> None:
    fields = msgspec.msgpack.decode(encode_message(message))
    assert decode_message(header(*fields, {"new": [1, 2, "three"]})) == message


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_header_cut_short_is_no_message(message: Message) -> None:
    encoded = encode_message(message)
    for cut in range(len(encoded)):
        with pytest.raises(RemoteProtocolError, match="not a message"):
            decode_message(encoded[:cut])


@pytest.mark.parametrize(
    "fields",
    [
        (),
        (23,),
        (99, "p1.3"),
        (-1, "p1.3"),
        ("Resolve", "p1.3"),
        (23, 5),
        (23, None),
        (23, b"p1.3"),
        (24, "p1.3", ["unix:/socket"]),
        (4, "c1.0", "a1", 0, 1.5, 2),
        (1, "c1.0", "a1", "step", [[0, 1]], 5, b""),
        (1, "c1.0", "a1", "step", [[0, 1, "7"]], 5, b""),
        (1, "c1.0", "a1", "step", [[0, 1, 7]], 5, b"", 0, "soon"),
        (21, "p1", "procs", [0], b"", b"", {"A": 1}, [], "/", "c1.0", ""),
        (25, "p1.3", True, {"kind": "proc_exited"}),
        (25, "p1.3", 1, {}),
    ],
)
def test_wrong_kinds_and_fields_are_no_message(fields: tuple[object, ...]) -> None:
    with pytest.raises(RemoteProtocolError, match="not a message"):
        decode_message(header(*fields))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xc1",
        b"\x93\x17\xa1\xff\x05",  # text that is not UTF-8
        header(23, "p1.3") + b"\0",
        msgspec.msgpack.encode({"type": 23, "proc": "p1.3"}),
        b"\x93\x17\xa1a" + b"\x91" * 200_000,  # nested too deep to be skipped
        b"\xdd\xff\xff\xff\xff\x17",  # an array of four billion
        b"GET / HTTP/1.1\r\n",
    ],
)
def test_garbage_is_no_message(garbage: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="not a message"):
        decode_message(garbage)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(garbage: bytes) -> None:
    for encoded in (garbage, b"\x93\x17" + garbage, encode_message(EXAMPLES[1])[:20] + garbage):
        try:
            assert isinstance(decode_message(encoded), Message)
        except RemoteProtocolError:
            continue


def test_a_message_is_read_from_any_bytes() -> None:
    encoded = encode_message(Resolve("p1.3"))
    assert decode_message(memoryview(encoded)) == Resolve("p1.3")


@pytest.mark.parametrize(("mesh", "rank"), [("p0123", 0), ("p0123", 70_000), ("with.dots", 3)])
def test_a_proc_id_names_its_mesh_and_rank(mesh: str, rank: int) -> None:
    assert split_proc_id(proc_id(mesh, rank)) == (mesh, rank)
