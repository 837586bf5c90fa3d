"""The clock of a process: the machine's monotonic one, or a test's."""

import time
from collections.abc import Callable
from typing import Protocol

_LONGEST_SLEEP_S = 1e6
"""Pollers count milliseconds in 31 bits. Whoever wakes too early asks again."""


class Clock(Protocol):
    """What the reactor asks of time."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def wait_s(self, deadline: float | None) -> float | None:
        """How long to sleep at most on the way to `deadline`; None is until woken."""

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when time jumps."""


class MonotonicClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def wait_s(self, deadline: float | None) -> float | None:
        """Seconds left until `deadline`, never negative, and no more than a poller can sleep."""
        if deadline is None:
            return None
        return min(max(0.0, deadline - time.monotonic()), _LONGEST_SLEEP_S)

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Real time does not jump: nothing to do."""
