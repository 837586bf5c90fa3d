"""The clock of a process: the machine's monotonic one, or a test's."""

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What the reactor asks of time."""

    def now(self) -> float:
        """Seconds since some fixed moment."""

    def wait_s(self, deadline: float | None) -> float | None:
        """How long to sleep at most until `deadline`; None is until woken."""

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when time jumps."""


class MonotonicClock:
    """The machine's own clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def wait_s(self, deadline: float | None) -> float | None:
        """Seconds left until `deadline`, never negative."""
        if deadline is None:
            return None
        return max(0.0, deadline - time.monotonic())

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Real time does not jump: nothing to do."""
