"""Which ranks of a call have answered, and when it is over."""

from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.protocol.collect import Collector


def test_a_call_is_over_with_the_last_answer_whatever_their_order() -> None:
    collector = Collector[str, str]([4, 2, 9])
    assert [collector.answered(9, "z"), collector.answered(4, "x"), collector.answered(2, "y")] == [False, False, True]
    assert collector.results == {4: "x", 2: "y", 9: "z"}
    assert collector.failures == {}


def test_a_call_is_over_with_the_first_failure() -> None:
    collector = Collector[str, str]([0, 1, 2])
    collector.answered(2, "z")
    assert collector.failed(0, "broken")
    assert collector.failures == {0: "broken"}
    assert collector.results == {2: "z"}
    assert collector.pending == [1]


def test_a_call_that_waits_for_all_is_over_with_the_last_rank_whether_it_answers_or_fails() -> None:
    collector = Collector[str, str]([0, 1, 2], waits_for_all=True)
    assert not collector.failed(0, "broken")
    assert not collector.answered(1, "y")
    assert collector.failed(2, "broken too")
    ending_well = Collector[str, str]([0, 1], waits_for_all=True)
    ending_well.failed(0, "broken")
    assert ending_well.answered(1, "y")


def test_a_second_answer_or_failure_of_a_rank_changes_nothing() -> None:
    collector = Collector[str, str]([0, 1], waits_for_all=True)
    collector.answered(0, "first")
    assert not collector.answered(0, "second")
    assert not collector.failed(0, "broken")
    assert (collector.results, collector.failures) == ({0: "first"}, {})
    collector.failed(1, "broken")
    assert not collector.failed(1, "again")
    collector.answered(1, "late")
    assert (collector.results, collector.failures) == ({0: "first"}, {1: "broken"})


def test_a_rank_that_was_not_called_changes_nothing() -> None:
    collector = Collector[str, str]([0, 1])
    assert not collector.answered(7, "who?")
    assert not collector.failed(7, "who?")
    assert (collector.results, collector.failures, collector.pending) == ({}, {}, [0, 1])


def test_ranks_that_are_waited_for_keep_the_order_of_the_call() -> None:
    collector = Collector[str, str]([5, 1, 3])
    collector.answered(1, "x")
    assert collector.pending == [5, 3]
    assert [collector.waits_for(rank) for rank in (5, 1, 3, 7)] == [True, False, True, False]


@settings(max_examples=30, deadline=None)
@given(st.sets(st.integers(0, 6), min_size=1), st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=20))
def test_every_rank_counts_once_by_what_came_first(ranks: set[int], events: list[tuple[int, bool]]) -> None:
    collector = Collector[int, int](sorted(ranks), waits_for_all=True)
    first: dict[int, bool] = {}
    for number, (rank, answers) in enumerate(events):
        (collector.answered if answers else collector.failed)(rank, number)
        if rank in ranks:
            first.setdefault(rank, answers)
    assert set(collector.results) == {rank for rank, answers in first.items() if answers}
    assert set(collector.failures) == {rank for rank, answers in first.items() if not answers}
    assert set(collector.pending) == ranks - set(first)
