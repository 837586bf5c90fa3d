"""`Mailbox`: where messages to one actor land: put in order, withdrawn when cancelled, refused when it is closed."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from danaus.protocol.frame import Frame
from danaus.protocol.message import Cast, Message
from danaus.protocol.ordering import Reorder
from danaus.runtime.pickling import Pickled

Answer = Callable[[Message, Pickled], None]
"""Sends a reply to whoever sent the message."""

_MAX_REMEMBERED_CANCELS = 1024


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
        self._cancelled: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, delivery: Delivery) -> bool:
        """Take a message; False if the mailbox is closed. It may have to wait for earlier ones of its origin."""
        cast = delivery.cast
        with self._lock:
            if self._closed:
                return False
            order = self._orders.get(cast.origin)
            if order is None:
                order = self._orders[cast.origin] = Reorder()
            self._enqueue(order.receive(cast.runs[0][2], delivery))
            return True

    def gap(self, origin: str, first: int, last: int) -> None:
        """Numbers that will never come no longer hold up what follows them."""
        with self._lock:
            order = self._orders.get(origin)
            if order is None:
                order = self._orders[origin] = Reorder()
            self._enqueue(order.gap(first, last))

    def get_nowait(self) -> Delivery | None:
        """The next message, or None."""
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def cancel(self, origin: str, call: int) -> bool:
        """Withdraw a message, also one that has not come yet; True if it was queued."""
        with self._lock:
            for delivery in self._queue:
                if delivery.cast.call == call and delivery.cast.origin == origin:
                    self._queue.remove(delivery)
                    return True
            self._cancelled[origin, call] = None
            if len(self._cancelled) > _MAX_REMEMBERED_CANCELS:
                self._cancelled.popitem(last=False)
            return False

    def close(self) -> None:
        """Take no more."""
        with self._lock:
            self._closed = True

    def drain(self) -> list[Delivery]:
        """Take out all that is queued."""
        with self._lock:
            rest = list(self._queue)
            self._queue.clear()
            return rest

    def _enqueue(self, ready: Sequence[Delivery]) -> None:
        if self._cancelled:
            ready = [delivery for delivery in ready if not self._take_cancel(delivery.cast)]
        self._queue.extend(ready)

    def _take_cancel(self, cast: Cast) -> bool:
        return self._cancelled.pop((cast.origin, cast.call), self) is None
