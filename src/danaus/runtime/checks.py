"""What public verbs check of their arguments, annotated or not, before anything is sent."""

import math

from danaus.errors import ConfigError


def check_timeout_s(timeout_s: object, *, zero: bool = False) -> None:
    """Raise unless `timeout_s` is None (wait for ever) or a positive number of seconds; 0 only where `zero` is."""
    if timeout_s is None:
        return
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float):
        raise TypeError(f"timeout_s is {timeout_s!r}; it is a number of seconds, or None to wait for ever")
    if not math.isfinite(timeout_s) or timeout_s < 0 or (timeout_s == 0 and not zero):
        least = "0 or more" if zero else "more than 0"
        raise ConfigError(f"timeout_s is {timeout_s}; give it {least} seconds, or None to wait for ever")


def check_name(name: object) -> None:
    """Raise unless `name` is a text that messages to people can show."""
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}; it is the text by which messages to people call the mesh")
    if not name or not name.isprintable():
        raise ConfigError(f"name is {name!r}; it needs at least one letter, and printable ones only")
