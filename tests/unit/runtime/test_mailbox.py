"""Mailboxes: in order, once, and nothing waits for what will not come."""

import threading
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from danaus.protocol.frame import Frame
from danaus.protocol.message import Cast
from danaus.runtime.mailbox import Delivery, Mailbox

FRAME = Frame(b"", b"", ())


def message(number: int, origin: str = "client") -> Delivery:
    """Its call id is its number plus 100."""
    cast = Cast(origin, "actor", "endpoint", ((0, 1, number),), number + 100, b"")
    return Delivery(cast, FRAME, lambda reply, pickled: None, None)


def filled(*numbers: int, origin: str = "client") -> Mailbox:
    mailbox = Mailbox()
    for number in numbers:
        assert mailbox.put(message(number, origin))
    return mailbox


def numbers(deliveries: Sequence[Delivery]) -> list[int]:
    return [delivery.cast.runs[0][2] for delivery in deliveries]


def handle_all(mailbox: Mailbox) -> list[int]:
    """As an actor does, one after the other."""
    handled = []
    while (delivery := mailbox.get_nowait()) is not None:
        handled.append(delivery)
        mailbox.taken = None
    return numbers(handled)


def test_an_empty_mailbox_gives_nothing() -> None:
    mailbox = Mailbox()
    assert mailbox.get_nowait() is None
    assert len(mailbox) == 0


def test_messages_come_out_in_the_order_of_their_numbers() -> None:
    mailbox = filled(2, 0)
    assert len(mailbox) == 1
    mailbox.put(message(1))
    assert len(mailbox) == 3
    assert handle_all(mailbox) == [0, 1, 2]


def test_origins_do_not_wait_for_each_other() -> None:
    mailbox = filled(1, origin="late")
    mailbox.put(message(0, "one"))
    mailbox.put(message(0, "other"))
    assert [delivery.cast.origin for delivery in iter(mailbox.get_nowait, None)] == ["one", "other"]
    mailbox.put(message(0, "late"))
    assert handle_all(mailbox) == [0, 1]


def test_a_double_is_handled_once_whether_the_first_was_handled_or_waits() -> None:
    mailbox = filled(0, 0, 2, 2)
    assert handle_all(mailbox) == [0]
    for number in (0, 1, 1):
        mailbox.put(message(number))
    assert handle_all(mailbox) == [1, 2]


def test_a_gap_lets_what_waited_for_it_out() -> None:
    mailbox = filled(3)
    mailbox.gap("client", 0, 1)
    assert handle_all(mailbox) == []
    mailbox.gap("client", 2, 2)
    assert handle_all(mailbox) == [3]


def test_a_gap_of_one_origin_is_none_of_another() -> None:
    mailbox = filled(1, origin="one")
    mailbox.gap("other", 0, 0)
    assert handle_all(mailbox) == []


def test_a_cancelled_message_that_is_queued_is_withdrawn() -> None:
    mailbox = filled(0, 1, 2)
    assert mailbox.cancel("client", 101, 1) is None
    assert handle_all(mailbox) == [0, 2]


def test_a_cancelled_message_that_waits_for_an_earlier_one_is_withdrawn() -> None:
    mailbox = filled(1, 2)
    assert mailbox.cancel("client", 101, 1) is None
    mailbox.put(message(0))
    assert handle_all(mailbox) == [0, 2]


def test_a_cancel_that_overtakes_its_message_is_remembered() -> None:
    mailbox = filled(0)
    assert mailbox.cancel("client", 101, 1) is None
    mailbox.put(message(2))
    mailbox.put(message(1))
    assert handle_all(mailbox) == [0, 2]


def test_a_cancelled_message_that_never_comes_holds_up_nothing() -> None:
    mailbox = filled(1)
    mailbox.cancel("client", 100, 0)
    assert handle_all(mailbox) == [1]


def test_a_cancelled_message_that_is_being_handled_is_returned_until_it_has_ended() -> None:
    mailbox = filled(0, 1)
    running = mailbox.get_nowait()
    assert mailbox.cancel("client", 100, 0) is running
    assert mailbox.cancel("other", 100, 0) is None
    mailbox.taken = None
    assert mailbox.cancel("client", 100, 0) is None
    assert handle_all(mailbox) == [1]


def test_a_cancel_takes_only_the_message_of_its_own_origin() -> None:
    mailbox = filled(0, origin="one")
    mailbox.put(message(0, "other"))
    mailbox.cancel("other", 100, 0)
    assert [delivery.cast.origin for delivery in iter(mailbox.get_nowait, None)] == ["one"]


def test_a_closed_mailbox_takes_no_more_but_gives_what_it_has() -> None:
    mailbox = filled(0, 1)
    mailbox.close()
    assert not mailbox.put(message(2))
    assert handle_all(mailbox) == [0, 1]


def test_draining_takes_out_all_that_is_queued_or_waits_for_an_earlier_message() -> None:
    mailbox = filled(0, 1, 4, 3)
    mailbox.put(message(5, "other"))
    mailbox.close()
    assert numbers(mailbox.drain()) == [0, 1, 3, 4, 5]
    assert handle_all(mailbox) == []
    assert mailbox.drain() == []


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_whatever_order_they_come_in_each_message_that_is_not_lost_or_cancelled_is_handled_once_in_order(
    data: st.DataObject,
) -> None:
    total = data.draw(st.integers(1, 8))
    fates = [
        data.draw(st.sampled_from(["comes", "comes", "lost", "cancelled", "cancelled and lost"])) for _ in range(total)
    ]
    events = []
    for number, fate in enumerate(fates):
        if not fate.endswith("lost"):
            events.append(("put", number))
        if fate == "lost":
            events.append(("gap", number))
        if fate.startswith("cancelled"):
            events.append(("cancel", number))
    events += data.draw(st.lists(st.sampled_from(events), max_size=4))
    mailbox = Mailbox()
    handled: list[int] = []
    for kind, number in data.draw(st.permutations(events)):
        if kind == "put":
            mailbox.put(message(number))
        elif kind == "gap":
            mailbox.gap("client", number, number)
        else:
            mailbox.cancel("client", number + 100, number)
        if data.draw(st.booleans()):
            handled += handle_all(mailbox)
    handled += handle_all(mailbox)
    assert handled == sorted(set(handled))
    assert set(handled) >= {number for number, fate in enumerate(fates) if fate == "comes"}
    assert set(handled) <= {number for number, fate in enumerate(fates) if fate in ("comes", "cancelled")}


def test_threads_that_put_at_once_lose_nothing_and_break_no_order() -> None:
    mailbox = Mailbox()
    begun = threading.Barrier(4)

    def put(first: int) -> None:
        begun.wait()
        for number in range(first, 200, 4):
            mailbox.put(message(number))

    threads = [threading.Thread(target=put, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert handle_all(mailbox) == list(range(200))
