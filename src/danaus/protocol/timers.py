"""`TimerQueue`: what is due when. Cancelling is cheap, since nearly every timer of a call is cancelled by its reply."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")

_FEW_CANCELLED = 64


class Timer(Generic[T]):
    """Handle of one scheduled token, for `TimerQueue.cancel`."""

    __slots__ = ("token",)

    def __init__(self, token: T) -> None:
        self.token: T | None = token
        """None once it is cancelled or due."""


class TimerQueue(Generic[T]):
    """Tokens (never None) in order of deadline. Memory follows the pending ones, however many were cancelled."""

    __slots__ = ("_cancelled", "_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer[T]]] = []
        self._count = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def schedule(self, deadline: float, token: T) -> Timer[T]:
        """Have `token` given out by the first `pop_due` at or after `deadline`."""
        timer = Timer(token)
        # The count keeps equal deadlines in the order they were scheduled, and tokens from being compared.
        self._count += 1
        heapq.heappush(self._heap, (deadline, self._count, timer))
        return timer

    def cancel(self, timer: Timer[T]) -> None:
        """Never give out this timer's token. No effect once it is due or cancelled."""
        if timer.token is None:
            return
        timer.token = None
        self._cancelled += 1
        if self._cancelled > _FEW_CANCELLED and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].token is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def next_deadline(self) -> float | None:
        """The deadline of the earliest pending timer; None if there is none."""
        heap = self._heap
        while heap and heap[0][2].token is None:
            heapq.heappop(heap)
            self._cancelled -= 1
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> list[T]:
        """Take out the tokens whose deadline is not after `now`, earliest first, equal ones in order of scheduling."""
        heap = self._heap
        due: list[T] = []
        while heap and heap[0][0] <= now:
            timer = heapq.heappop(heap)[2]
            token = timer.token
            if token is None:
                self._cancelled -= 1
            else:
                timer.token = None
                due.append(token)
        return due
