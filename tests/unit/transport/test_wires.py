"""Which transport an address belongs to."""

import pytest

from danaus.errors import ConfigError
from danaus.transport.inproc import InprocNetwork
from danaus.transport.wires import Wires


def two_networks() -> tuple[Wires, InprocNetwork, InprocNetwork]:
    first, second = InprocNetwork(), InprocNetwork()
    transports = {"inproc": first.transport_of("me"), "other": second.transport_of("me")}
    return Wires(transports, "inproc"), first, second


def test_listening_is_done_on_the_preferred_transport() -> None:
    wires, first, second = two_networks()
    address = wires.listen("name").address
    assert first.connect(address, "anyone").address == address
    with pytest.raises(ConnectionRefusedError):
        second.connect(address, "anyone")


def test_an_address_is_connected_by_the_transport_it_names() -> None:
    transports: dict[str, Spy] = {"unix": Spy(), "tcp": Spy()}
    wires = Wires(transports, "unix")  # type: ignore[arg-type]
    wires.connect("tcp:127.0.0.1:80")
    wires.connect("unix:/a:b")
    assert transports["tcp"].addresses == ["tcp:127.0.0.1:80"]
    assert transports["unix"].addresses == ["unix:/a:b"]


class Spy:
    """A transport that only writes down where it was to connect."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def connect(self, address: str) -> None:
        self.addresses.append(address)


def test_an_address_of_an_unknown_transport_says_which_there_are() -> None:
    wires, _, _ = two_networks()
    with pytest.raises(ConfigError, match=r"'efa:7' needs the transport 'efa'; this process has \['inproc', 'other'\]"):
        wires.connect("efa:7")


def test_what_a_transport_says_about_an_address_comes_through() -> None:
    wires, _, _ = two_networks()
    with pytest.raises(ConnectionRefusedError, match="nobody listens"):
        wires.connect("inproc:nobody")
