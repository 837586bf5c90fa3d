"""Numbering, re-ordering and runs of ranks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.errors import RemoteProtocolError
from danaus.protocol.ordering import Numbering, Reorder, decode_runs, encode_runs

few = settings(max_examples=25, deadline=None)


def test_each_rank_is_numbered_from_zero() -> None:
    numbering = Numbering()
    assert [numbering.take(3), numbering.take(3), numbering.take(9), numbering.take(3)] == [0, 1, 0, 2]


def test_many_numbers_taken_at_once_continue_those_taken_singly() -> None:
    numbering = Numbering()
    numbering.take(1)
    assert numbering.take_many([0, 1, 2]) == [0, 1, 0]
    assert numbering.take(1) == 2


def test_messages_in_order_pass_straight_through() -> None:
    reorder = Reorder[str]()
    assert [tuple(reorder.receive(n, item)) for n, item in enumerate("abc")] == [("a",), ("b",), ("c",)]
    assert reorder.parked == 0


def test_an_early_message_waits_for_the_missing_one() -> None:
    reorder = Reorder[str]()
    assert list(reorder.receive(1, "b")) == []
    assert reorder.parked == 1
    assert list(reorder.receive(0, "a")) == ["a", "b"]
    assert reorder.parked == 0


def test_a_double_of_a_handled_message_is_dropped() -> None:
    reorder = Reorder[str]()
    reorder.receive(0, "a")
    assert list(reorder.receive(0, "again")) == []
    assert list(reorder.receive(1, "b")) == ["b"]


def test_a_double_of_a_parked_message_is_dropped() -> None:
    reorder = Reorder[str]()
    reorder.receive(1, "b")
    assert list(reorder.receive(1, "again")) == []
    assert list(reorder.receive(0, "a")) == ["a", "b"]


def test_a_gap_frees_what_waited_for_it() -> None:
    reorder = Reorder[str]()
    reorder.receive(3, "d")
    assert list(reorder.gap(0, 1)) == []
    assert list(reorder.gap(2, 2)) == ["d"]


def test_a_gap_that_comes_before_its_turn_is_remembered() -> None:
    reorder = Reorder[str]()
    assert list(reorder.gap(1, 2)) == []
    assert list(reorder.receive(0, "a")) == ["a"]
    assert list(reorder.receive(3, "d")) == ["d"]


def test_a_message_inside_an_announced_gap_is_not_handled() -> None:
    reorder = Reorder[str]()
    reorder.gap(1, 2)
    reorder.receive(2, "late")
    assert list(reorder.receive(0, "a")) == ["a"]
    assert list(reorder.receive(2, "later still")) == []
    assert list(reorder.receive(3, "d")) == ["d"]
    assert reorder.parked == 0


def test_a_gap_withdraws_a_message_that_is_parked() -> None:
    reorder = Reorder[str]()
    reorder.receive(1, "withdrawn")
    assert list(reorder.gap(0, 1)) == []
    assert reorder.parked == 0
    assert reorder.expected == 2


def test_overlapping_and_doubled_gaps_count_once() -> None:
    reorder = Reorder[str]()
    reorder.receive(6, "g")
    for first, last in [(2, 4), (1, 3), (2, 4), (4, 5)]:
        assert list(reorder.gap(first, last)) == []
    assert list(reorder.gap(0, 0)) == ["g"]
    assert list(reorder.gap(0, 5)) == []


def test_a_huge_gap_costs_nothing() -> None:
    reorder = Reorder[str]()
    reorder.receive(2**60 + 1, "z")
    assert list(reorder.gap(0, 2**60)) == ["z"]


def test_too_many_parked_messages_are_a_protocol_error() -> None:
    reorder = Reorder[int](limit=3)
    reorder.receive(1, 1)
    reorder.receive(2, 2)
    reorder.gap(5, 5)
    with pytest.raises(RemoteProtocolError, match="wait for number 0"):
        reorder.receive(7, 7)
    assert list(reorder.receive(0, 0)) == [0, 1, 2]


def test_a_gap_that_ends_before_it_begins_is_a_protocol_error() -> None:
    with pytest.raises(RemoteProtocolError, match="gap ends at 1"):
        Reorder[int]().gap(2, 1)


@few
@given(st.data())
def test_any_arrival_order_with_losses_and_doubles_is_handled_in_order_and_once(data: st.DataObject) -> None:
    total = data.draw(st.integers(1, 12))
    lost = data.draw(st.sets(st.integers(0, total - 1)))
    events = [("gap" if n in lost else "message", n) for n in range(total)]
    doubled = data.draw(st.lists(st.sampled_from(events), max_size=6))
    arrival = data.draw(st.permutations(events + doubled))
    reorder = Reorder[int]()
    handled: list[int] = []
    for kind, number in arrival:
        handled.extend(reorder.gap(number, number) if kind == "gap" else reorder.receive(number, number))
    assert handled == [n for n in range(total) if n not in lost]
    assert reorder.parked == 0
    assert reorder.expected == total


@few
@given(st.lists(st.one_of(st.integers(0, 9), st.tuples(st.integers(0, 9), st.integers(0, 4))), max_size=20))
def test_contradicting_gaps_and_messages_never_break_order_or_repeat(events: list[int | tuple[int, int]]) -> None:
    reorder = Reorder[int]()
    handled: list[int] = []
    for event in events:
        match event:
            case (first, length):
                handled.extend(reorder.gap(first, first + length))
            case number:
                handled.extend(reorder.receive(number, number))
    assert handled == sorted(set(handled))
    assert all(number < reorder.expected for number in handled)


def test_ranks_in_step_are_one_run() -> None:
    assert encode_runs([(rank, 7) for rank in range(1000)]) == [(0, 1000, 7)]


def test_a_run_ends_where_the_rank_jumps_or_the_number_differs() -> None:
    assert encode_runs([(0, 1), (1, 1), (3, 1), (4, 2), (5, 2)]) == [(0, 2, 1), (3, 1, 1), (4, 2, 2)]


@few
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=12))
def test_runs_decode_to_the_pairs_they_encode(pairs: list[tuple[int, int]]) -> None:
    assert decode_runs(encode_runs(pairs)) == pairs


@pytest.mark.parametrize("run", [(-1, 1, 0), (0, 0, 0), (0, -5, 0), (0, 1, -1)])
def test_an_impossible_run_is_a_protocol_error(run: tuple[int, int, int]) -> None:
    with pytest.raises(RemoteProtocolError, match="impossible run"):
        decode_runs([(0, 1, 0), run])


def test_runs_that_name_too_many_ranks_are_refused_before_they_are_unrolled() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 8 ranks"):
        decode_runs([(0, 4, 0), (4, 2**60, 0)], limit=8)
