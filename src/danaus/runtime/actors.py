"""`Actors`: the actors of one process by id: spawns them, hands them their messages, answers for those that ended."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

from danaus.protocol.frame import Frame
from danaus.protocol.message import NO_REPLY, Cancel, Cast, Gap, Ping, Refused, Reply, SpawnActor, StopActor
from danaus.runtime.cell import ActorCell, CellOwner
from danaus.runtime.mailbox import Answer, Delivery
from danaus.runtime.pickling import Pickled

_NOTHING = Pickled(b"")
_NONE = Pickled(b"N.")
_MAX_ENDED = 10_000


class Actors:
    """Thread-safe: messages come from the driving thread and, within the process, from their senders."""

    def __init__(self, owner: CellOwner, *, park_timeout_s: float) -> None:
        self._owner = owner
        self._park_timeout_s = park_timeout_s
        self._lock = threading.Lock()
        self._cells: dict[str, ActorCell] = {}
        self._parked: dict[str, list[Callable[[ActorCell | None], None]]] = {}
        """What came before its actor: called with it when it is there, or with None when its time is over."""
        self._ended: OrderedDict[str, Refused] = OrderedDict()
        self._closing = False
        self._held: list[Callable[[], None]] | None = None

    def hold(self) -> None:
        """Make no actor and answer no ping until `release`: the bootstrap runs first."""
        self._held = []

    def release(self) -> None:
        """The bootstrap has run: do what came meanwhile, in its order."""
        while True:
            with self._lock:
                held, self._held = self._held, []
                if not held:
                    self._held = None
                    return
            for action in held:
                action()

    def ping(self, message: Ping, answer: Answer) -> None:
        """Answer once actors can be made."""
        self.when_released(partial(answer, Reply(message.call, message.rank), _NONE))

    def find(self, actor: str) -> ActorCell | None:
        """The living actor `actor`."""
        return self._cells.get(actor)

    def all(self) -> Sequence[ActorCell]:
        """The living actors, oldest first."""
        return list(self._cells.values())

    def spawn(self, message: SpawnActor, frame: Frame, answer: Answer) -> None:
        """Make an actor; answered when its constructor ended."""
        self.when_released(partial(self._spawn_now, message, frame, answer))

    def when_released(self, action: Callable[[], None]) -> None:
        """Run `action` now, or, if the bootstrap still runs, after what came before it."""
        with self._lock:
            if self._held is not None:
                self._held.append(action)
                return
        action()

    def _spawn_now(self, message: SpawnActor, frame: Frame, answer: Answer) -> None:
        with self._lock:
            if self._closing:
                answer(Reply(message.call, message.rank, refused=Refused("stopped")), _NOTHING)
                return
            cell = ActorCell(self._owner, message, frame, answer)
            parked = self._parked.pop(message.actor, [])
            for early in parked:
                early(cell)
            self._cells[message.actor] = cell
        cell.start()

    def cast(self, message: Cast, frame: Frame, answer: Answer) -> None:
        """Hand a message to its actor; one that is still to be spawned is waited for."""
        deadline = None
        if message.time_left_s is not None:
            deadline = self._owner.reactor.clock.now() + message.time_left_s
        delivery = Delivery(message, frame, answer, deadline)
        cell = self._cells.get(message.actor)
        if cell is not None:
            self._deliver(delivery, cell)
        else:
            self._park(message.actor, partial(self._deliver, delivery))

    def cancel(self, message: Cancel) -> None:
        """A caller no longer waits."""
        self._park(message.actor, lambda cell: None if cell is None else cell.cancel(message))

    def gap(self, message: Gap) -> None:
        """Numbers that will never come."""
        cell = self._cells.get(message.actor)
        if cell is not None:
            cell.skip(message.origin, message.first, message.last)

    def stop(self, message: StopActor, answer: Answer, rank: int) -> None:
        """Stop an actor; answered when it has ended or its time is over."""
        done = partial(answer, Reply(message.call, rank), _NONE)

        def stop(cell: ActorCell | None) -> None:
            if cell is None:
                done()
            else:
                cell.stop(message.timeout_s, now=message.now, done=done)

        self._park(message.actor, stop)

    def orphan(self, proc: str) -> None:
        """The proc `proc` is gone: stop the actors whose owner lived there."""
        for cell in self.all():
            if cell.spawn.owner.partition("/")[0] == proc:
                cell.stop(1.0, now=True, done=lambda: None)

    def close(self) -> None:
        """Refuse to make more."""
        with self._lock:
            self._closing = True

    def ended(self, cell: ActorCell, refusal: Refused) -> None:
        """`cell` is no more; `refusal` answers what still comes for it."""
        with self._lock:
            self._cells.pop(cell.spawn.actor, None)
            self._ended[cell.spawn.actor] = refusal
            if len(self._ended) > _MAX_ENDED:
                self._ended.popitem(last=False)

    def _park(self, actor: str, action: Callable[[ActorCell | None], None]) -> None:
        """Call `action` with the actor: now, or when it is spawned; with None if it has ended or does not come."""
        with self._lock:
            cell = self._cells.get(actor)
            if cell is None and actor not in self._ended:
                parked = self._parked.setdefault(actor, [])
                parked.append(action)
                if len(parked) == 1:
                    self._owner.reactor.call_later(self._park_timeout_s, partial(self._unpark, actor))
                return
        action(cell)

    def _unpark(self, actor: str) -> None:
        with self._lock:
            parked = self._parked.pop(actor, [])
        for early in parked:
            early(None)

    def _deliver(self, delivery: Delivery, cell: ActorCell | None) -> None:
        cast = delivery.cast
        if cell is None:
            late = Refused("unreachable", f"its actor was not spawned within {self._park_timeout_s:g} s")
            self._refuse(delivery, self._ended.get(cast.actor, late))
        elif cast.incarnation != cell.spawn.incarnation:
            self._refuse(delivery, Refused("stale", f"{cast.incarnation} {cell.spawn.incarnation}"))
            number = cast.runs[0][2]
            cell.skip(cast.origin, number, number)
        else:
            cell.deliver(delivery)

    def _refuse(self, delivery: Delivery, refusal: Refused) -> None:
        cast = delivery.cast
        if cast.call != NO_REPLY:
            delivery.answer(Reply(cast.call, cast.runs[0][0], refused=refusal), _NOTHING)
