"""Regions in headers: their wire form as bytes, with the last ones kept, since a mesh is called again and again."""

from functools import lru_cache

import msgspec

from danaus.topology import Region


def region_bytes(region: Region) -> bytes:
    """The wire form of `region` for a header."""
    return msgspec.msgpack.encode(region.to_wire())


@lru_cache(maxsize=4096)
def region_of(wire: bytes) -> Region:
    """The inverse of `region_bytes`."""
    return Region.from_wire(msgspec.msgpack.decode(wire))
