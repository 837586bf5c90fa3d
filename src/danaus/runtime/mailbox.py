"""`Mailbox`: where messages to one actor land: put in order, withdrawn when cancelled, refused when it is closed."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from danaus.protocol.frame import Frame
from danaus.protocol.message import Cast, Message
from danaus.protocol.ordering import Reorder
from danaus.runtime.pickling import Pickled

Answer = Callable[[Message, Pickled], None]
"""Sends a reply to whoever sent the message."""


@dataclass(slots=True)
class Delivery:
    """A message in a mailbox."""

    cast: Cast
    frame: Frame
    answer: Answer
    deadline: float | None
    """By the clock of this process; not run after it."""


class Mailbox:
    """Thread-safe. Messages of one origin come out in the order of their numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: deque[Delivery] = deque()
        self._orders: dict[str, Reorder[Delivery]] = {}
        self._closed = False
        self.taken: Delivery | None = None
        """The message taken out last, until whoever handles it sets this to None."""

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, delivery: Delivery) -> bool:
        """Take a message; False if the mailbox is closed. It may have to wait for earlier ones of its origin."""
        cast = delivery.cast
        with self._lock:
            if self._closed:
                return False
            self._queue.extend(self._order(cast.origin).receive(cast.runs[0][2], delivery))
            return True

    def gap(self, origin: str, first: int, last: int) -> None:
        """Numbers that will never come no longer hold up what follows them."""
        with self._lock:
            self._queue.extend(self._order(origin).gap(first, last))

    def get_nowait(self) -> Delivery | None:
        """The next message, or None."""
        with self._lock:
            self.taken = self._queue.popleft() if self._queue else None
            return self.taken

    def cancel(self, origin: str, call: int, number: int) -> Delivery | None:
        """Withdraw a message, also one that has not come yet. If it was taken out, it is returned: cancel it there."""
        with self._lock:
            if self.taken is not None and _is(self.taken, origin, call):
                return self.taken
            for delivery in self._queue:
                if _is(delivery, origin, call):
                    self._queue.remove(delivery)
                    return None
            self._queue.extend(self._order(origin).gap(number, number))
            return None

    def close(self) -> None:
        """Take no more."""
        with self._lock:
            self._closed = True

    def drain(self) -> list[Delivery]:
        """Take out all that is here, also what still waits for an earlier message."""
        with self._lock:
            rest = list(self._queue)
            self._queue.clear()
            for order in self._orders.values():
                rest.extend(order.give_up())
            return rest

    def _order(self, origin: str) -> Reorder[Delivery]:
        order = self._orders.get(origin)
        if order is None:
            order = self._orders[origin] = Reorder()
        return order


def _is(delivery: Delivery, origin: str, call: int) -> bool:
    return delivery.cast.call == call and delivery.cast.origin == origin
