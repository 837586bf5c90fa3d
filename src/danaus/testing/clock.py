"""`VirtualClock`: time that moves only when a test says so."""

import threading
from collections.abc import Callable


class VirtualClock:
    """A `danaus.runtime.clock.Clock` that starts at 0 and stands still until advanced. Any thread may use it.

    A poller that asks how long to sleep is told "until woken"; advancing wakes every subscriber.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._wakers: list[Callable[[], None]] = []
        self._deadlines: dict[int, float | None] = {}  # by thread
        self._changed = threading.Condition()

    def now(self) -> float:
        """Seconds advanced so far."""
        return self._now

    def wait_s(self, deadline: float | None) -> float | None:
        """0 when `deadline` has passed, else None: sleep until woken. Remembers what the calling thread waits for."""
        with self._changed:
            self._deadlines[threading.get_ident()] = deadline
            self._changed.notify_all()
            return 0.0 if deadline is not None and deadline <= self._now else None

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each advance, on the thread that advances; it must not block."""
        with self._changed:
            self._wakers.append(wake)

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        if seconds < 0:
            raise ValueError(f"seconds is {seconds:g}; time only moves forward")
        with self._changed:
            self._move_to(self._now + seconds)
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def advance_to_next(self) -> float:
        """Let pass what is left until the earliest deadline that a poller waits for, and return the new time."""
        with self._changed:
            deadline = self.next_deadline
            if deadline is None:
                raise LookupError("no poller waits for a deadline; wait_sleeping() returns when one does")
            self._move_to(max(self._now, deadline))
            wakers = list(self._wakers)
        for wake in wakers:
            wake()
        return self._now

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline that a poller waits for."""
        with self._changed:
            return min((deadline for deadline in self._deadlines.values() if deadline is not None), default=None)

    @property
    def num_sleepers(self) -> int:
        """Threads that wait for a deadline still to come."""
        with self._changed:
            return sum(deadline is not None and deadline > self._now for deadline in self._deadlines.values())

    def wait_sleeping(self, num_sleepers: int = 1, *, timeout_s: float = 5.0) -> None:
        """Return once so many threads wait for a deadline, so that advancing cannot come too early.

        Raises:
            TimeoutError: fewer did within `timeout_s` of real time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.num_sleepers >= num_sleepers, timeout_s):
                raise TimeoutError(
                    f"{self.num_sleepers} of {num_sleepers} threads wait for a deadline after {timeout_s:g} s"
                )

    def _move_to(self, moment: float) -> None:
        self._now = moment
        # Whoever was due is about to wake and to say anew what it waits for.
        ahead = ((thread, deadline) for thread, deadline in self._deadlines.items() if deadline is not None)
        self._deadlines = {thread: deadline for thread, deadline in ahead if deadline > moment}
