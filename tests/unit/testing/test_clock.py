import threading

import pytest

from danaus.runtime.clock import Clock
from danaus.testing.clock import VirtualClock


class Poller:
    """Sleeps as the reactor does: until its deadline as the clock sees it, or until woken."""

    def __init__(self, clock: Clock, deadline: float) -> None:
        self.woken = threading.Event()
        self.ended_at: float | None = None
        clock.subscribe(self.woken.set)
        self.thread = threading.Thread(target=self.run, args=(clock, deadline))
        self.thread.start()

    def run(self, clock: Clock, deadline: float) -> None:
        while clock.now() < deadline:
            self.woken.clear()
            if clock.now() < deadline:
                self.woken.wait(clock.wait_s(deadline))
        self.ended_at = clock.now()

    def join(self) -> float | None:
        self.thread.join(5.0)
        return self.ended_at


def test_time_stands_still_until_advanced() -> None:
    clock = VirtualClock()
    assert clock.now() == 0.0
    clock.advance(1.5)
    clock.advance(0.25)
    assert clock.now() == 1.75


def test_a_poller_sleeps_until_woken_unless_it_is_due() -> None:
    clock = VirtualClock()
    clock.advance(1.0)
    assert clock.wait_s(None) is None
    assert clock.wait_s(2.0) is None
    assert clock.wait_s(1.0) == 0.0


def test_advancing_wakes_every_subscriber() -> None:
    clock = VirtualClock()
    woken_at: list[float] = []
    clock.subscribe(lambda: woken_at.append(clock.now()))
    clock.subscribe(lambda: woken_at.append(-clock.now()))
    clock.advance(3.0)
    assert woken_at == [3.0, -3.0]


def test_a_sleeping_thread_runs_on_when_its_deadline_comes() -> None:
    clock = VirtualClock()
    poller = Poller(clock, 2.0)
    clock.wait_sleeping()
    assert clock.next_deadline == 2.0
    clock.advance(2.0)
    assert poller.join() == 2.0


def test_the_next_deadline_is_the_earliest_of_all_pollers() -> None:
    clock = VirtualClock()
    late, early = Poller(clock, 9.0), Poller(clock, 4.0)
    clock.wait_sleeping(2)
    assert clock.advance_to_next() == 4.0
    assert early.join() == 4.0
    clock.wait_sleeping(1)
    assert clock.advance_to_next() == 9.0
    assert late.join() == 9.0


def test_a_poller_that_waits_for_something_else_by_now_has_no_deadline() -> None:
    clock = VirtualClock()
    clock.wait_s(5.0)
    clock.wait_s(None)
    assert clock.next_deadline is None
    assert clock.num_sleepers == 0


def test_nobody_to_advance_to_says_so() -> None:
    with pytest.raises(LookupError, match="wait_sleeping"):
        VirtualClock().advance_to_next()


def test_too_few_sleepers_say_so() -> None:
    with pytest.raises(TimeoutError, match="0 of 1"):
        VirtualClock().wait_sleeping(timeout_s=0.0)


def test_time_never_runs_backwards() -> None:
    with pytest.raises(ValueError, match="forward"):
        VirtualClock().advance(-1.0)
