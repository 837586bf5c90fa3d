"""Who is told of a failure, and when the root hook runs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.errors import Failure
from danaus.protocol.supervision import ROOT, Escalate, OwnerId, Ownership, RootLedger, RunHook, Tell, answered

ALICE, BOB = OwnerId("alice"), OwnerId("bob")


def failure(kind: str = "proc_exited", rank: int = 0) -> Failure:
    return Failure(kind=kind, mesh="trainers", rank=rank, point={"gpus": rank}, cause="killed by SIGKILL")


DEATH = failure()


def owned() -> Ownership:
    """Alice owns the procs and one actor mesh on them, Bob another."""
    ownership = Ownership()
    ownership.own_procs("procs", ALICE)
    ownership.own_actors("hers", "procs", owner=ALICE)
    ownership.own_actors("his", "procs", owner=BOB)
    return ownership


def test_each_owner_is_told_once_of_a_dead_proc_however_much_it_owns_there() -> None:
    assert owned().proc_died("procs", 0, failure=DEATH) == [Tell(ALICE, DEATH), Tell(BOB, DEATH)]


def test_each_dead_rank_is_told() -> None:
    ownership = owned()
    ownership.proc_died("procs", 0, failure=DEATH)
    other = failure(rank=1)
    assert ownership.proc_died("procs", 1, failure=other) == [Tell(ALICE, other), Tell(BOB, other)]


def test_news_of_a_death_that_come_twice_are_told_once() -> None:
    ownership = owned()
    ownership.proc_died("procs", 0, failure=DEATH)
    assert ownership.proc_died("procs", 0, failure=DEATH) == []


def test_the_client_owns_what_it_spawned() -> None:
    ownership = Ownership()
    ownership.own_procs("procs", ROOT)
    assert ownership.proc_died("procs", 2, failure=DEATH) == [Tell(ROOT, DEATH)]


def test_the_owner_of_actors_is_told_of_the_death_of_procs_owned_elsewhere() -> None:
    ownership = Ownership()
    ownership.own_actors("his", "procs", owner=BOB)
    assert ownership.proc_died("procs", 0, failure=DEATH) == [Tell(BOB, DEATH)]
    assert ownership.proc_died("procs", 0, failure=DEATH) == []


def test_actors_on_a_slice_that_leaves_out_the_dead_proc_are_not_concerned() -> None:
    ownership = Ownership()
    ownership.own_actors("his", "procs", owner=BOB, ranks=range(2, 4))
    assert ownership.proc_died("procs", 0, failure=DEATH) == []
    assert ownership.proc_died("procs", 3, failure=DEATH) == [Tell(BOB, DEATH)]


def test_the_end_of_an_actor_that_follows_from_its_procs_death_is_not_told_again() -> None:
    ownership = owned()
    ownership.proc_died("procs", 0, failure=DEATH)
    assert ownership.actor_failed("his", 0, failure=failure("actor_exited")) == []


def test_a_procs_death_that_follows_its_actors_end_is_not_told_again_to_the_actors_owner() -> None:
    ownership = owned()
    raised = failure("constructor_raised")
    assert ownership.actor_failed("his", 0, failure=raised) == [Tell(BOB, raised)]
    assert ownership.proc_died("procs", 0, failure=DEATH) == [Tell(ALICE, DEATH)]


def test_an_owner_told_of_a_dead_proc_is_not_told_again_for_actors_it_spawned_there_later() -> None:
    ownership = owned()
    ownership.proc_died("procs", 0, failure=DEATH)
    ownership.own_actors("more", "procs", owner=ALICE)
    assert ownership.proc_died("procs", 0, failure=DEATH) == []


def test_an_actors_death_is_told_once_for_each_rank() -> None:
    ownership = owned()
    raised = failure("constructor_raised")
    assert ownership.actor_failed("hers", 0, failure=raised) == [Tell(ALICE, raised)]
    assert ownership.actor_failed("hers", 0, failure=raised) == []
    assert ownership.actor_failed("hers", 1, failure=raised) == [Tell(ALICE, raised)]


def test_every_broadcast_that_raised_is_told_and_the_actor_counts_as_alive() -> None:
    ownership = owned()
    raised = failure("endpoint_raised")
    for _ in range(3):
        assert ownership.actor_failed("his", 0, failure=raised) == [Tell(BOB, raised)]
    assert Tell(BOB, DEATH) in ownership.proc_died("procs", 0, failure=DEATH)


def test_nobody_is_told_of_what_was_stopped_on_purpose() -> None:
    ownership = owned()
    ownership.disown("his")
    assert ownership.actor_failed("his", 0, failure=DEATH) == []
    assert ownership.proc_died("procs", 0, failure=DEATH) == [Tell(ALICE, DEATH)]


def test_stopping_procs_ends_the_interest_in_the_actors_on_them() -> None:
    ownership = owned()
    ownership.disown("procs")
    assert ownership.proc_died("procs", 0, failure=DEATH) == []
    assert ownership.actor_failed("hers", 0, failure=DEATH) == []


def test_nobody_is_told_of_a_mesh_that_is_not_owned_here() -> None:
    ownership = Ownership()
    ownership.disown("unknown")
    assert ownership.proc_died("unknown", 0, failure=DEATH) == []
    assert ownership.actor_failed("unknown", 0, failure=DEATH) == []


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_whatever_happened_nothing_is_remembered_once_all_is_disowned(data: st.DataObject) -> None:
    ownership = owned()
    ownership.own_actors("far", "elsewhere", owner=BOB)
    for mesh, rank in data.draw(st.lists(st.tuples(st.sampled_from(["procs", "elsewhere"]), st.integers(0, 3)))):
        ownership.proc_died(mesh, rank, failure=DEATH)
        ownership.actor_failed(data.draw(st.sampled_from(["hers", "his", "far"])), rank, failure=DEATH)
    for mesh in data.draw(st.permutations(["procs", "hers", "his", "far"])):
        ownership.disown(mesh)
    assert not any(vars(ownership).values())


def test_a_handled_failure_goes_no_further() -> None:
    assert answered(Tell(ALICE, DEATH), handled=True, owner_name="alice") is None


@pytest.mark.parametrize("answer", [False, None, 1, "yes", [True]])
def test_only_the_literal_true_means_handled(answer: object) -> None:
    assert answered(Tell(ALICE, DEATH), handled=answer, owner_name="alice[0]") == Escalate(DEATH.escalated("alice[0]"))


def test_an_escalated_failure_names_the_owners_nearest_first() -> None:
    first = answered(Tell(ALICE, DEATH), handled=False, owner_name="inner")
    assert first is not None
    second = answered(Tell(BOB, first.failure), handled=None, owner_name="outer")
    assert second is not None
    assert second.failure.chain == ("inner", "outer")


def test_a_failure_nobody_received_runs_the_hook_after_the_grace() -> None:
    ledger = RootLedger(0.5)
    ledger.failed("k", DEATH, now=10.0, awaited=False)
    assert ledger.next_deadline() == 10.5
    assert ledger.tick(10.4) == []
    assert ledger.tick(10.5) == [RunHook("k", DEATH)]
    assert ledger.next_deadline() is None


def test_the_hook_runs_once_for_each_failure_even_when_its_news_are_doubled() -> None:
    ledger = RootLedger(0.5)
    ledger.failed("k", DEATH, now=0.0, awaited=False)
    ledger.failed("k", DEATH, now=0.4, awaited=False)
    assert len(ledger.tick(0.5)) == 1
    ledger.failed("k", DEATH, now=0.6, awaited=False)
    assert ledger.tick(9.0) == ledger.closing() == []


def test_a_failure_received_within_the_grace_runs_no_hook() -> None:
    ledger = RootLedger(0.5)
    ledger.failed("k", DEATH, now=0.0, awaited=False)
    ledger.claimed("k")
    assert ledger.next_deadline() is None
    assert ledger.tick(9.0) == ledger.closing() == []


def test_a_failure_received_before_its_news_came_runs_no_hook() -> None:
    ledger = RootLedger(0.5)
    ledger.claimed("k")
    ledger.failed("k", DEATH, now=0.0, awaited=False)
    assert ledger.tick(9.0) == ledger.closing() == []


def test_a_failure_that_a_future_holds_waits_until_it_is_claimed() -> None:
    ledger = RootLedger(0.5)
    ledger.failed("k", DEATH, now=0.0, awaited=True)
    assert ledger.next_deadline() is None
    assert ledger.tick(99.0) == []
    ledger.claimed("k")
    assert ledger.closing() == []


def test_a_failure_whose_futures_were_dropped_runs_the_hook() -> None:
    ledger = RootLedger(0.5)
    ledger.failed("k", DEATH, now=0.0, awaited=True)
    ledger.abandoned("k")
    ledger.abandoned("k")
    assert ledger.tick(0.4) == []
    assert ledger.tick(0.5) == [RunHook("k", DEATH)]


def test_a_future_that_turns_up_later_holds_the_failure() -> None:
    ledger = RootLedger(0.5)
    ledger.failed("k", DEATH, now=0.0, awaited=False)
    ledger.failed("k", DEATH, now=0.1, awaited=True)
    assert ledger.tick(9.0) == []


def test_at_the_end_of_the_program_everything_unclaimed_runs_the_hook_in_order() -> None:
    ledger = RootLedger(0.5)
    ledger.failed("held", DEATH, now=0.0, awaited=True)
    ledger.failed("fresh", DEATH, now=0.0, awaited=False)
    ledger.failed("seen", DEATH, now=0.0, awaited=True)
    ledger.claimed("seen")
    assert [hook.failure_key for hook in ledger.closing()] == ["held", "fresh"]
    assert ledger.closing() == ledger.tick(9.0) == []


def test_news_of_unknown_futures_change_nothing() -> None:
    ledger = RootLedger(0.5)
    ledger.abandoned("never heard of")
    assert ledger.closing() == []


def test_only_the_last_claims_are_remembered() -> None:
    ledger = RootLedger(0.0)
    for number in range(1025):
        ledger.claimed(str(number))
    for key in ("0", "1", "1024"):
        ledger.failed(key, DEATH, now=0.0, awaited=False)
    assert ledger.tick(0.0) == [RunHook("0", DEATH)]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["failed", "held", "claimed", "abandoned", "tick"]))))
def test_every_failure_is_either_claimed_first_or_given_to_the_hook_once(events: list[tuple[str, str]]) -> None:
    ledger = RootLedger(1.0)
    outcome: dict[str, list[str]] = {key: [] for key in "abc"}
    hooked: list[RunHook] = []
    for now, (key, event) in enumerate(events):
        outcome[key].append(event)
        match event:
            case "claimed":
                ledger.claimed(key)
            case "abandoned":
                ledger.abandoned(key)
            case "tick":
                hooked += ledger.tick(now)
            case _:
                ledger.failed(key, DEATH, now=now, awaited=event == "held")
    hooked += ledger.closing()
    keys = [hook.failure_key for hook in hooked]
    assert len(keys) == len(set(keys))
    for key, happened in outcome.items():
        failed = any(event in ("failed", "held") for event in happened)
        if not failed:
            assert key not in keys
        elif "claimed" not in happened:
            assert key in keys
        elif happened.index("claimed") < min(happened.index(e) for e in ("failed", "held") if e in happened):
            assert key not in keys
