"""`Collector`: which ranks of a call have answered, and when the call is over."""

from collections.abc import Sequence
from typing import Generic, TypeVar

V = TypeVar("V")
E = TypeVar("E")


class Collector(Generic[V, E]):
    """Takes answers and failures of `ranks`, in any order, each rank once; doubles and strangers are dropped.

    The call is over with the first failure, or, if it `waits_for_all`, with the last rank.
    """

    __slots__ = ("_left", "failures", "ranks", "results", "waits_for_all")

    def __init__(self, ranks: Sequence[int], *, waits_for_all: bool = False) -> None:
        self.ranks = ranks
        self.waits_for_all = waits_for_all
        self.results: dict[int, V] = {}
        self.failures: dict[int, E] = {}
        self._left = set(ranks)

    def answered(self, rank: int, value: V) -> bool:
        """Take the answer of `rank`; True if the call is over."""
        if rank in self._left:
            self._left.remove(rank)
            self.results[rank] = value
        return not self._left

    def failed(self, rank: int, failure: E) -> bool:
        """Take the failure of `rank`; True if the call is over."""
        if rank not in self._left:
            return False
        self._left.remove(rank)
        self.failures[rank] = failure
        return not (self.waits_for_all and self._left)

    def waits_for(self, rank: int) -> bool:
        """Whether `rank` has not answered yet."""
        return rank in self._left

    @property
    def pending(self) -> list[int]:
        """Ranks that have not answered, in the order of the call."""
        return [rank for rank in self.ranks if rank in self._left]
