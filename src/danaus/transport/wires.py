"""Which transport an address belongs to."""

from collections.abc import Mapping

from danaus.errors import ConfigError
from danaus.transport.stream import Listener, Stream, Transport


class Wires:
    """The transports of one process by the scheme of their addresses; `preferred` is used to listen."""

    def __init__(self, transports: Mapping[str, Transport], preferred: str) -> None:
        self._transports = dict(transports)
        self._preferred = preferred

    def listen(self, name: str) -> Listener:
        """A listener on the preferred transport."""
        return self._transports[self._preferred].listen(name)

    def connect(self, address: str) -> Stream:
        """A stream to `address` by the transport it names. `OSError` if nobody can be there."""
        scheme = address.partition(":")[0]
        transport = self._transports.get(scheme)
        if transport is None:
            raise ConfigError(
                f"{address!r} needs the transport {scheme!r}; this process has {sorted(self._transports)}"
            )
        return transport.connect(address)
