"""What a mesh is when it travels: small structures that name it and say where its hosts' agents are."""

import os
from collections.abc import Callable

import msgspec

from danaus.protocol.routing import AgentRef
from danaus.runtime.regions import region_bytes, region_of
from danaus.topology import Region


def new_id(kind: str) -> str:
    """A name that nobody else has: `kind` and 64 random bits."""
    return kind + os.urandom(8).hex()


class HostsRef(msgspec.Struct, frozen=True, array_like=True):
    """Hosts, in rank order of their base extent."""

    name: str
    agents: tuple[str, ...]

    def agent_of(self, rank: int) -> AgentRef:
        """The agent of the host with this base rank."""
        return AgentRef.from_text(self.agents[rank])


class ProcsRef(msgspec.Struct, frozen=True, array_like=True):
    """A proc mesh: its procs are `<id>.<rank>`."""

    id: str
    name: str
    agents: tuple[str, ...]
    per_host: int
    region: bytes
    """The region of the reference: base and slice."""
    hosts: bytes = b""
    """Wire form of the region of hosts it was spawned on."""

    def agent_finder(self) -> Callable[[int], AgentRef]:
        """From base rank to agent."""
        agents = [AgentRef.from_text(text) for text in self.agents]
        if len(agents) == 1:
            only = agents[0]
            return lambda rank: only
        per_host = self.per_host
        return lambda rank: agents[rank // per_host]

    def with_region(self, region: Region) -> "ProcsRef":
        """The same procs over another region."""
        return msgspec.structs.replace(self, region=region_bytes(region))

    def whole_region(self) -> Region:
        """The region of the reference."""
        return region_of(self.region)


class ActorsRef(msgspec.Struct, frozen=True, array_like=True):
    """An actor mesh on a proc mesh; ranks are those of the procs."""

    id: str
    name: str
    class_name: str
    procs: ProcsRef
    region: bytes
    """The region of this reference."""
    spawned: bytes
    """The region it was spawned on."""


_procs_decoder = msgspec.msgpack.Decoder(ProcsRef)

encode_ref = msgspec.msgpack.Encoder().encode


def decode_procs(wire: bytes) -> ProcsRef:
    """The inverse of `encode_ref` for procs."""
    return _procs_decoder.decode(wire)
