"""`HandDriven`: stands for a reactor whose every turn is taken by the test."""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from danaus.protocol.timers import Timer, TimerQueue
from danaus.testing.clock import VirtualClock


class HandDriven:
    """Runs posts and timers in `run` and `advance`, on the calling thread, and nothing by itself."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.shield: AbstractContextManager[None] = nullcontext()
        self.watched: dict[int, int] = {}
        self._posts: deque[Callable[[], None]] = deque()
        self._timers: TimerQueue[Callable[[], None]] = TimerQueue()

    def register(self, fd: int, callback: Callable[[int], None], close: Callable[[], object]) -> None:
        self.watched[fd] = 1

    def modify(self, fd: int, events: int) -> None:
        self.watched[fd] = events

    def unregister(self, fd: int) -> None:
        del self.watched[fd]

    def post(self, callback: Callable[[], None]) -> None:
        self._posts.append(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        return self._timers.schedule(self.clock.now() + delay_s, callback)

    def cancel_timer(self, handle: object) -> None:
        assert isinstance(handle, Timer)
        self._timers.cancel(handle)

    @property
    def num_timers(self) -> int:
        return len(self._timers)

    def run(self, turns: int = 10_000) -> int:
        """Run posts, and what they post, until there are none or so many ran; how many ran."""
        for ran in range(turns):
            if not self._posts:
                return ran
            self._posts.popleft()()
        return turns

    def advance(self, seconds: float) -> None:
        """Let time pass, and run what is due."""
        self.clock.advance(seconds)
        for callback in self._timers.pop_due(self.clock.now()):
            callback()
        self.run()
