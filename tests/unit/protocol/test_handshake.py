"""The opening of a link: secret, versions, and what a stranger may send."""

import hmac

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.errors import AuthenticationFailed, ConfigError, RemoteProtocolError, VersionMismatch
from danaus.protocol.handshake import MAX_MESSAGE_BYTES, Handshake, Hello, Proof, Refused, Versions

SECRET = b"a secret of the job, 32 bytes ..."
VERSIONS = Versions(protocol=1, danaus="0.1.0", python="3.11.9")
encode = msgspec.msgpack.encode


def initiator(secret: bytes = SECRET, versions: Versions = VERSIONS) -> Handshake:
    return Handshake(secret, "client.0", nonce=b"i" * 32, initiator=True, versions=versions)


def acceptor(secret: bytes = SECRET, versions: Versions = VERSIONS) -> Handshake:
    return Handshake(secret, "trainers.3", nonce=b"a" * 32, initiator=False, versions=versions)


def hello(
    *, magic: str = "danaus", protocol: int = 1, python: str = "3.11.9", peer: str = "p.0", nonce: bytes = b"x" * 32
) -> bytes:
    return encode(Hello(magic, protocol, "0.1.0", python, peer, nonce))


def met(secret: bytes = SECRET) -> tuple[Handshake, Handshake, bytes, bytes]:
    """Both sides after the hellos, with the proof of each."""
    one, other = initiator(), acceptor(secret)
    [first], [second] = one.start(), other.start()
    [one_proof], [other_proof] = one.receive(second), other.receive(first)
    return one, other, one_proof, other_proof


def receive_all(side: Handshake, *messages: bytes | bytearray) -> None:
    for message in messages:
        side.receive(message)


def test_both_sides_are_done_after_one_round_trip_and_know_each_other() -> None:
    one, other, one_proof, other_proof = met()
    assert not one.done
    assert list(one.receive(other_proof)) == []
    assert list(other.receive(one_proof)) == []
    assert (one.done, one.peer) == (True, "trainers.3")
    assert (other.done, other.peer) == (True, "client.0")
    assert one.refusal is other.refusal is None


def test_messages_may_arrive_in_any_kind_of_buffer() -> None:
    one, other = initiator(), acceptor()
    [first], [second] = one.start(), other.start()
    [proof] = one.receive(bytearray(second))
    other.receive(memoryview(first))
    other.receive(memoryview(proof))
    assert other.done


def test_a_wrong_secret_fails_on_both_sides() -> None:
    one, other, one_proof, other_proof = met(secret=b"another secret")
    with pytest.raises(AuthenticationFailed, match=r"trainers\.3 did not prove"):
        one.receive(other_proof)
    with pytest.raises(AuthenticationFailed, match=r"client\.0 did not prove"):
        other.receive(one_proof)
    assert not one.done
    assert not other.done


def test_a_refusal_for_a_wrong_secret_tells_nothing_of_the_secret() -> None:
    one, other, _, _ = met(secret=b"another secret")
    with pytest.raises(AuthenticationFailed):
        one.receive(encode(Proof(b"guess")))
    assert one.refusal is not None
    assert SECRET not in one.refusal
    with pytest.raises(AuthenticationFailed, match="the peer refused this link"):
        other.receive(one.refusal)


def test_a_proof_sent_back_to_its_sender_is_no_proof() -> None:
    one, _, one_proof, _ = met()
    with pytest.raises(AuthenticationFailed):
        one.receive(one_proof)


def test_a_hello_sent_back_to_its_sender_is_refused() -> None:
    one = initiator()
    [own] = one.start()
    with pytest.raises(AuthenticationFailed, match="our own hello"):
        one.receive(own)


def test_a_proof_recorded_from_another_link_is_no_proof() -> None:
    _, _, _, recorded = met()
    fresh = Handshake(SECRET, "client.0", nonce=b"n" * 32, initiator=True, versions=VERSIONS)
    fresh.start()
    fresh.receive(acceptor().start()[0])
    with pytest.raises(AuthenticationFailed):
        fresh.receive(recorded)


def test_two_sides_that_both_opened_the_link_do_not_believe_each_other() -> None:
    one = initiator()
    other = Handshake(SECRET, "p.1", nonce=b"o" * 32, initiator=True, versions=VERSIONS)
    [first], [second] = one.start(), other.start()
    [proof] = other.receive(first)
    one.receive(second)
    with pytest.raises(AuthenticationFailed):
        one.receive(proof)


def test_a_proof_covers_the_name_of_its_sender() -> None:
    one, other = initiator(), acceptor()
    one.start()
    [second] = other.start()
    altered = msgspec.msgpack.decode(second, type=Hello)
    one.receive(encode(msgspec.structs.replace(altered, peer="trainers.4")))
    [proof] = other.receive(initiator().start()[0])
    with pytest.raises(AuthenticationFailed):
        one.receive(proof)


@pytest.mark.parametrize(
    ("versions", "what"),
    [
        (Versions(2, "0.1.0", "3.11.9"), "the protocol differs: 1 here, 2 there"),
        (Versions(1, "0.2.0", "3.11.9"), "the version of Danaus differs: 0.1.0 here, 0.2.0 there"),
        (Versions(1, "0.1.0", "3.12.1"), "the version of Python differs: 3.11.9 here, 3.12.1 there"),
    ],
)
def test_other_versions_are_named_on_both_sides(versions: Versions, what: str) -> None:
    one, other = initiator(), acceptor(versions=versions)
    one.start()
    other.start()
    with pytest.raises(VersionMismatch, match=what):
        one.receive(acceptor(versions=versions).start()[0])
    assert one.refusal is not None
    with pytest.raises(VersionMismatch) as caught:
        other.receive(one.refusal)
    assert f"{caught.value.theirs} here, {caught.value.ours} there" in what


def test_another_patch_release_of_python_is_no_mismatch() -> None:
    one = initiator()
    one.start()
    assert len(one.receive(hello(python="3.11.2"))) == 1


def test_a_hello_of_a_later_protocol_with_more_fields_is_a_version_mismatch() -> None:
    one = initiator()
    one.start()
    with pytest.raises(VersionMismatch, match="2 there"):
        one.receive(encode([1, "danaus", 2, "9.0", "3.14.0", "p.0", b"x" * 32, {"more": [1]}]))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "not a Danaus process"),
        (b"GET / HTTP/1.1\r\n\r\n", "not a Danaus process"),
        (b"\x91" * 4000, "not a Danaus process"),
        (encode([1, "danaus", 1, "0.1.0", "3.11.9", "p.0", b"x" * 32]) + b"more", "not a Danaus process"),
        (encode([1, "danaus", 1]), "not a Danaus process"),
        (b"\x97\x01\xa2\xff\xff" + encode(1) * 5, "not a Danaus process"),
        (encode([1, "danaus", 2, "", "", "p.0", b"", *[0] * 5]), "the protocol differs"),
        (b"\x98" + hello()[1:] + b"\x91" * 3000 + b"\x90", "not a Danaus process"),
        (hello(magic="other"), "not a Danaus process"),
        (hello(nonce=b"short"), "nonce has 5 bytes"),
        (hello(peer=""), "id is empty"),
        (hello(peer="a\x1b[2J"), "not printable"),
        (hello(peer="p" * 1000), "too long"),
        (b"\x00" * (MAX_MESSAGE_BYTES + 1), f"{MAX_MESSAGE_BYTES + 1} bytes"),
        (encode(Proof(b"m" * 32)), "out of turn"),
    ],
)
def test_what_no_danaus_would_say_first_is_a_protocol_error_and_refused(message: bytes, reason: str) -> None:
    one = initiator()
    one.start()
    with pytest.raises(RemoteProtocolError, match=reason):
        one.receive(message)
    assert one.refusal is not None
    assert not one.done


def test_a_second_hello_is_refused() -> None:
    one = initiator()
    one.start()
    one.receive(hello())
    with pytest.raises(RemoteProtocolError, match="hello twice"):
        one.receive(hello())


def test_a_second_proof_is_refused() -> None:
    one, _, _, other_proof = met()
    one.receive(other_proof)
    with pytest.raises(RemoteProtocolError, match="out of turn"):
        one.receive(other_proof)
    assert not one.done


def test_nothing_is_believed_after_a_failure() -> None:
    one, _, _, other_proof = met()
    with pytest.raises(AuthenticationFailed):
        one.receive(encode(Proof(b"guess")))
    with pytest.raises(RemoteProtocolError, match="had failed"):
        one.receive(other_proof)
    assert not one.done


def test_the_reason_of_a_stranger_is_shown_short_and_printable() -> None:
    one = initiator()
    one.start()
    with pytest.raises(RemoteProtocolError) as caught:
        one.receive(encode(Refused("protocol", "\x1b[31m" + "x" * 2000)))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400
    assert one.refusal is None


def test_an_empty_secret_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="secret is empty"):
        initiator(secret=b"")


def test_the_proof_is_an_hmac_sha256_over_role_and_hellos_byte_by_byte() -> None:
    one, other = initiator(), acceptor()
    [first], [second] = one.start(), other.start()
    [proof] = one.receive(second)
    role = b"danaus handshake: initiator"
    covered = b"".join(len(part).to_bytes(4, "big") + part for part in (role, first, second))
    assert proof == b"\x92\x02\xc4\x20" + hmac.digest(SECRET, covered, "sha256")


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_damaged_byte_never_ends_in_done(data: st.DataObject) -> None:
    one, other = initiator(), acceptor()
    one.start()
    [second] = other.start()
    place = data.draw(st.integers(0, len(second) - 1))
    damaged = bytearray(second)
    damaged[place] ^= data.draw(st.integers(1, 255))
    [proof] = other.receive(initiator().start()[0])
    with pytest.raises(RemoteProtocolError):
        receive_all(one, damaged, proof)
    assert not one.done
