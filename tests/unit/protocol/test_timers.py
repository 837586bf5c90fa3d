"""The queue of timers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.protocol.timers import Timer, TimerQueue


def test_tokens_come_out_when_due_earliest_first() -> None:
    timers = TimerQueue[str]()
    for deadline, token in [(3.0, "c"), (1.0, "a"), (2.0, "b")]:
        timers.schedule(deadline, token)
    assert timers.next_deadline() == 1.0
    assert timers.pop_due(2.0) == ["a", "b"]
    assert timers.pop_due(2.9) == []
    assert len(timers) == 1


def test_equal_deadlines_come_out_in_the_order_scheduled() -> None:
    timers = TimerQueue[object]()
    tokens = [object(), object(), object()]
    for token in tokens:
        timers.schedule(1.0, token)
    assert timers.pop_due(1.0) == tokens


def test_a_cancelled_timer_never_comes_out() -> None:
    timers = TimerQueue[str]()
    first = timers.schedule(1.0, "a")
    timers.schedule(2.0, "b")
    timers.cancel(first)
    assert len(timers) == 1
    assert timers.next_deadline() == 2.0
    assert timers.pop_due(5.0) == ["b"]


def test_cancelling_twice_or_after_the_deadline_does_nothing() -> None:
    timers = TimerQueue[str]()
    due, cancelled = timers.schedule(1.0, "a"), timers.schedule(1.0, "b")
    timers.schedule(9.0, "c")
    timers.cancel(cancelled)
    timers.cancel(cancelled)
    assert timers.pop_due(1.0) == ["a"]
    timers.cancel(due)
    assert len(timers) == 1
    assert timers.pop_due(9.0) == ["c"]


def test_an_empty_queue_has_no_deadline() -> None:
    timers = TimerQueue[str]()
    assert timers.next_deadline() is None
    timers.cancel(timers.schedule(1.0, "a"))
    assert timers.next_deadline() is None
    assert len(timers) == 0


def test_cancelled_timers_do_not_pile_up_behind_a_pending_one() -> None:
    timers = TimerQueue[int]()
    timers.schedule(0.5, -1)
    for number in range(2000):
        timers.cancel(timers.schedule(1e9, number))
    assert len(timers) == 1
    assert len(timers._heap) < 200


def test_a_cancelled_timer_lets_go_of_its_token() -> None:
    timers = TimerQueue[list[int]]()
    handle = timers.schedule(1e9, [1, 2, 3])
    timers.cancel(handle)
    assert handle.token is None


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["schedule", "cancel", "pop"])), max_size=30))
def test_the_queue_agrees_with_a_plain_sorted_list(steps: list[tuple[int, str]]) -> None:
    timers = TimerQueue[int]()
    handles: list[Timer[int]] = []
    pending: dict[int, int] = {}
    for number, step in steps:
        match step:
            case "schedule":
                pending[len(handles)] = number
                handles.append(timers.schedule(number, len(handles)))
            case "cancel" if handles:
                victim = number % len(handles)
                pending.pop(victim, None)
                timers.cancel(handles[victim])
            case _:
                due = sorted((token for token in pending if pending[token] <= number), key=lambda t: (pending[t], t))
                assert timers.pop_due(number) == due
                for token in due:
                    del pending[token]
        assert len(timers) == len(pending)
        assert timers.next_deadline() == min(pending.values(), default=None)
