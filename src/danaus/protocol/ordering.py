"""Order per (origin, actor): the origin numbers its messages, the receiver puts them in order and drops doubles."""

import heapq
from collections.abc import Sequence
from typing import Generic, TypeVar

from danaus.errors import RemoteProtocolError

T = TypeVar("T")

Run = tuple[int, int, int]
"""(first rank, how many ranks, the number that all of them share)."""

MAX_RANKS = 1 << 20
"""Most destinations that one cast may name."""
MAX_PARKED = 1 << 20
"""Most early messages and gaps that wait for one missing number."""


class Numbering:
    """Numbers the messages of one origin to one actor mesh, per base rank, from 0. The caller locks it."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def take(self, rank: int) -> int:
        """The number of the next message to `rank`."""
        number = self._next.get(rank, 0)
        self._next[rank] = number + 1
        return number

    def take_many(self, ranks: Sequence[int]) -> list[int]:
        """The number of the next message to each of `ranks`, in their order."""
        following = self._next
        numbers = []
        for rank in ranks:
            number = following.get(rank, 0)
            following[rank] = number + 1
            numbers.append(number)
        return numbers


class Reorder(Generic[T]):
    """Puts the messages of one origin to one actor in order; each is handed out at most once.

    A gap wins over a message that is parked: its origin has been told that it never ran.
    """

    __slots__ = ("_gaps", "_limit", "_parked", "expected")

    def __init__(self, *, limit: int = MAX_PARKED) -> None:
        self.expected = 0
        """The lowest number neither handed out nor skipped."""
        self._parked: dict[int, T] = {}
        self._gaps: list[tuple[int, int]] = []
        self._limit = limit

    @property
    def parked(self) -> int:
        """How many messages wait for an earlier one."""
        return len(self._parked)

    def receive(self, number: int, item: T) -> Sequence[T]:
        """Take message `number`; what can be handled now, in order. A double or a skipped number gives nothing.

        Raises:
            RemoteProtocolError: too many messages wait for one that is missing.
        """
        expected = self.expected
        if number == expected:
            self.expected = number + 1
            if not self._parked and not self._gaps:
                return (item,)
            ready = [item]
            self._advance(ready)
            return ready
        if number > expected and number not in self._parked:
            self._check_room(number)
            self._parked[number] = item
        return ()

    def gap(self, first: int, last: int) -> Sequence[T]:
        """Numbers `first` to `last` (inclusive) will never come; what can be handled now, in order.

        Raises:
            RemoteProtocolError: the range is empty, or too much waits for a number that is missing.
        """
        if last < first:
            raise RemoteProtocolError(f"a gap ends at {last} before it begins at {first}")
        if last < self.expected:
            return ()
        if first > self.expected:
            self._check_room(first)
            heapq.heappush(self._gaps, (first, last))
            return ()
        self._skip_to(last + 1)
        ready: list[T] = []
        self._advance(ready)
        return ready

    def give_up(self) -> Sequence[T]:
        """Take out what is parked, in order: nobody waits any longer for what is missing."""
        parked = [self._parked[number] for number in sorted(self._parked)]
        self._parked.clear()
        return parked

    def _advance(self, ready: list[T]) -> None:
        """Hand out and skip as far as is known without a break."""
        parked, gaps = self._parked, self._gaps
        while True:
            if gaps and gaps[0][0] <= self.expected:
                self._skip_to(heapq.heappop(gaps)[1] + 1)
            elif self.expected in parked:
                ready.append(parked.pop(self.expected))
                self.expected += 1
            else:
                return

    def _skip_to(self, number: int) -> None:
        if number <= self.expected:
            return
        skipped = range(self.expected, number)
        self.expected = number
        # Walk the shorter of the two: a gap may be far longer than what is parked.
        for passed in skipped if len(skipped) < len(self._parked) else [n for n in self._parked if n in skipped]:
            self._parked.pop(passed, None)

    def _check_room(self, number: int) -> None:
        if len(self._parked) + len(self._gaps) >= self._limit:
            raise RemoteProtocolError(
                f"{self._limit} messages wait for number {self.expected}, which never came, and now number {number} too"
            )


def encode_runs(pairs: Sequence[tuple[int, int]]) -> list[Run]:
    """(rank, number) pairs as runs of consecutive ranks that share a number; their order is kept."""
    if len(pairs) == 1:
        return [(pairs[0][0], 1, pairs[0][1])]
    runs: list[Run] = []
    first, count, shared = 0, 0, -1
    for rank, number in pairs:
        if number == shared and rank == first + count:
            count += 1
            continue
        if count:
            runs.append((first, count, shared))
        first, count, shared = rank, 1, number
    if count:
        runs.append((first, count, shared))
    return runs


def decode_runs(runs: Sequence[Run], *, limit: int = MAX_RANKS) -> list[tuple[int, int]]:
    """The (rank, number) pairs of `runs`, which came from a peer.

    Raises:
        RemoteProtocolError: a run is empty or negative, or the runs name more than `limit` ranks.
    """
    total = 0
    for run in runs:
        first, count, number = run
        if first < 0 or count < 1 or number < 0:
            raise RemoteProtocolError(f"a cast names its ranks by an impossible run {tuple(run)}")
        total += count
        if total > limit:
            raise RemoteProtocolError(f"a cast names more than {limit} ranks")
    return [(rank, number) for first, count, number in runs for rank in range(first, first + count)]
