import pytest
from hypothesis import given
from hypothesis import strategies as st

from danaus.testing.faults import FaultPlan, Kill, Stop


def arrivals(plan: FaultPlan[int], num_frames: int) -> list[int]:
    """Frames 0, 1, ... sent 10 ms apart, in the order in which they arrive."""
    sent = [delivery for frame in range(num_frames) for delivery in plan.apply(frame, frame * 0.01)]
    return [frame for _, frame in sorted(sent, key=lambda delivery: delivery[0])]


def test_a_plan_without_rules_delivers_at_once() -> None:
    assert FaultPlan[bytes]().apply(b"x", 2.0) == [(2.0, b"x")]


def test_the_nth_frame_is_lost() -> None:
    assert arrivals(FaultPlan[int]().drop(nth=2), 4) == [0, 2, 3]


def test_only_matching_frames_are_counted_and_lost() -> None:
    plan = FaultPlan[int]().drop(nth=2, matching=lambda frame: frame % 2 == 1)
    assert arrivals(plan, 6) == [0, 1, 2, 4, 5]


def test_a_delayed_frame_is_overtaken() -> None:
    assert arrivals(FaultPlan[int]().delay(0.025, nth=1), 4) == [1, 2, 0, 3]


def test_a_doubled_frame_arrives_twice() -> None:
    assert arrivals(FaultPlan[int]().double(nth=2), 3) == [0, 1, 1, 2]


def test_each_copy_of_a_frame_meets_the_later_rules() -> None:
    plan = FaultPlan[int]().double().delay(1.0, nth=2)
    assert plan.apply(7, 0.0) == [(0.0, 7), (1.0, 7)]


def test_a_lost_frame_meets_no_later_rule() -> None:
    plan = FaultPlan[int]().drop(nth=1).double(nth=1)
    assert arrivals(plan, 2) == [1, 1]


def test_frames_within_the_window_overtake_each_other_and_none_is_lost() -> None:
    order = arrivals(FaultPlan[int](seed=3).reorder(0.05), 50)
    assert order != sorted(order)
    assert sorted(order) == list(range(50))
    assert max(abs(frame - place) for place, frame in enumerate(order)) <= 5


def test_a_share_of_the_frames_is_lost() -> None:
    assert 60 < len(arrivals(FaultPlan[int](seed=1).drop(share=0.3), 100)) < 80


def test_deaths_and_stops_are_due_once_after_so_many_frames() -> None:
    plan = FaultPlan[int]().kill("trainers.1", after_frames=2).stop("trainers.2", after_frames=3)
    due = [(plan.apply(frame, 0.0), plan.take_due())[1] for frame in range(4)]
    assert due == [[], [Kill("trainers.1", 2)], [Stop("trainers.2", 3)], []]


def test_a_lost_frame_counts_as_sent() -> None:
    plan = FaultPlan[int]().drop().kill("trainers.1", after_frames=1)
    assert plan.apply(0, 0.0) == []
    assert plan.take_due() == [Kill("trainers.1", 1)]


def test_a_link_of_its_own_has_counts_and_dice_of_its_own() -> None:
    plan = FaultPlan[int](seed=5).drop(share=0.5)
    first, second = plan.for_link("a"), plan.for_link("b")
    alone = arrivals(plan.for_link("a"), 40)
    interleaved = [(first.apply(frame, 0.0), second.apply(frame, 0.0))[0] for frame in range(40)]
    assert [frame for deliveries in interleaved for _, frame in deliveries] == alone
    assert arrivals(plan.for_link("b"), 40) != alone


def test_a_rule_added_later_changes_no_decision_of_the_others() -> None:
    plain, more = FaultPlan[int](seed=2).drop(share=0.5), FaultPlan[int](seed=2).drop(share=0.5).double(share=0.5)
    assert set(arrivals(plain, 50)) == set(arrivals(more, 50))


@given(st.integers())
def test_the_same_seed_decides_the_same(seed: int) -> None:
    plans = [FaultPlan[int].random(seed, procs=["a", "b"], within_frames=20) for _ in range(2)]
    first, second = ([plan.apply(frame, frame * 0.01) for frame in range(20)] for plan in plans)
    assert first == second
    assert plans[0].take_due() == plans[1].take_due() != []


@given(st.integers())
def test_a_plan_that_is_not_lossy_loses_nothing(seed: int) -> None:
    assert set(arrivals(FaultPlan[int].random(seed, lossy=False), 20)) == set(range(20))


@given(st.integers())
def test_nothing_arrives_before_it_was_sent_or_later_than_two_rules_may_hold_it(seed: int) -> None:
    plan = FaultPlan[int].random(seed, max_delay_s=0.5)
    moments = [moment for frame in range(20) for moment, _ in plan.apply(frame, 1.0)]
    assert all(1.0 <= moment <= 2.0 for moment in moments)


def test_an_unusable_choice_of_frames_says_so() -> None:
    with pytest.raises(ValueError, match="from 1"):
        FaultPlan[int]().drop(nth=0)
    with pytest.raises(ValueError, match="0 to 1"):
        FaultPlan[int]().drop(share=2.0)
