"""`Settings`: every knob, frozen, read once. The only module that reads the environment of the process."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields

from danaus.errors import ConfigError

VERSION = "0.1.0"
PROTOCOL = 1
"""Counts changes of what processes say to each other."""

PREFIX = "DANAUS_"
_MAX_PARENT_BYTES = 56
"""The path of a unix socket ends at 107 bytes; a directory and a file of ours take up to 50."""
_KINDS: Mapping[str, type[str | int | float]] = {"str": str, "int": int, "float": float}


@dataclass(frozen=True, slots=True)
class Settings:
    """How one client and everything it starts behaves. Each field can be set as `DANAUS_<FIELD>` in the environment."""

    transport: str = "unix"
    """Wire between procs of one host: "unix" (sockets in a directory of mode 0700) or "tcp" (loopback)."""
    connect_timeout_s: float = 30.0
    """How long a peer may take to accept a link and prove the secret before it counts as unreachable."""
    stop_timeout_s: float = 10.0
    """How long a stop may drain and clean up before it becomes a kill."""
    verdict_timeout_s: float = 2.0
    """How long after a link broke its agent may take to say why."""
    park_timeout_s: float = 30.0
    """How long a message waits for an actor whose spawn has not arrived yet."""
    unhandled_grace_s: float = 0.5
    """How long after a failure reached the client a caller may still receive it before the root hook runs."""
    switch_interval_s: float = 0.001
    """Python's thread switch interval inside procs: what a call waits at least while a neighbour burns Python."""
    stderr_tail_lines: int = 20
    """Lines of stderr kept for the report of a proc's death."""

    def __post_init__(self) -> None:
        if self.transport not in ("unix", "tcp"):
            raise ConfigError(f"transport is {self.transport!r}; use 'unix' or 'tcp'")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int | float) and not 0 <= value < math.inf:
                raise ConfigError(f"{field.name} is {value}; it cannot be negative or without end")
        if not self.switch_interval_s:
            raise ConfigError("switch_interval_s is 0; Python needs more than that between two switches")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """The settings that the environment asks for; an unusable value raises `ConfigError` naming its variable."""
        source = os.environ if environ is None else environ
        chosen: dict[str, object] = {}
        for field in fields(cls):
            text = source.get(PREFIX + field.name.upper())
            if text is None:
                continue
            kind = _KINDS[type(field.default).__name__]
            try:
                chosen[field.name] = kind(text)
            except ValueError as error:
                raise ConfigError(f"{PREFIX}{field.name.upper()}={text!r} is not a {kind.__name__}") from error
        return cls(**chosen)  # type: ignore[arg-type]


def process_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment a child gets: this process's own with `changes` on top."""
    return {**os.environ, **(changes or {})}


def runtime_parent() -> str:
    """The directory in which runtime directories (sockets) are made.

    Raises:
        ConfigError: there is none that can be written to and whose path is short enough for a socket in it.
    """
    import tempfile  # 5 ms that no proc needs

    places = [os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]  # noqa: S108 - it gets a directory of its own there
    for place in places:
        if place and len(os.fsencode(place)) <= _MAX_PARENT_BYTES and os.access(place, os.W_OK | os.X_OK):
            return place
    raise ConfigError(
        f"none of {', '.join(filter(None, places))} is a directory that can be written to and has a path of at most "
        f"{_MAX_PARENT_BYTES} bytes, so that sockets fit in; set XDG_RUNTIME_DIR to one"
    )
