"""`Calls`: calls of this process that wait for replies."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Generic, TypeVar

from danaus.errors import (
    ActorFailed,
    CallError,
    CallTimeout,
    DeliveryError,
    Error,
    MeshFailed,
    MeshStopped,
    NotPicklable,
    ReplyLost,
    StaleIncarnation,
)
from danaus.protocol.collect import Collector
from danaus.protocol.frame import Frame
from danaus.protocol.message import CallId, Refused, Reply
from danaus.protocol.routing import AgentRef, Gone
from danaus.runtime.future import Claim, Future, Waiting
from danaus.runtime.pickling import CodeBook
from danaus.topology import Point, Region

T = TypeVar("T")

_Load = Callable[[], object]
_LoadError = Callable[[], BaseException]
_Collector = Collector[_Load, _LoadError]


@dataclass(frozen=True, slots=True)
class CallPlan(Generic[T]):
    """What a call is about, apart from where it is sent."""

    text: str
    """How errors name it, as `counter.add`."""
    mesh: str
    """Name of the mesh called."""
    class_name: str
    procs: str
    """Id of the proc mesh whose ranks are called."""
    region: Region
    agent_of: Callable[[int], AgentRef]
    finish: Callable[[list[object]], T]
    """Makes the result of the values in the order of the region."""
    actor: str = ""
    """Id of the actor mesh called; none if the procs themselves are."""
    targets: Sequence[tuple[int, str, AgentRef]] = ()
    """Base rank, proc id and agent of each actor, in the order of the region."""
    region_wire: bytes = b""
    """The region for headers."""
    timeout_s: float | None = None
    return_exceptions: bool = False
    passive: bool = False
    """Nobody may ever look at the result: failures in it count as received only if somebody does."""
    single: bool = False
    """A failure is raised as itself, not inside a `CallError`."""

    ranks: Sequence[int] = field(init=False)
    """Base ranks in the order of the region."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", self.region.ranks())

    def point_of(self, rank: int) -> Point:
        """The point of a base rank within the region called."""
        return self.region.extent.point(self.region.index_of(rank))


Abandon = Callable[[CallPlan[object], str, CallId, Sequence[tuple[int, int]]], None]
"""Called with plan, origin, call, and the ranks whose answers are no longer wanted, each with its message's number."""


class _Pending:
    __slots__ = ("collector", "future", "keys", "numbers", "origin", "plan", "timer")

    def __init__(
        self,
        plan: CallPlan[object],
        origin: str,
        numbers: Sequence[int],
        collector: _Collector,
        future: Future[object],
    ) -> None:
        self.plan = plan
        self.origin = origin
        self.numbers = numbers
        self.collector = collector
        self.future = future
        self.timer: object | None = None
        self.keys: list[str] = []


class Calls:
    """Opens calls, takes replies, ends each call once: by its replies, a death, its deadline or a cancel."""

    def __init__(
        self,
        runtime: Waiting,
        book: CodeBook,
        *,
        claim: Callable[[Sequence[str], bool], Claim | None],
        abandon: Abandon,
    ) -> None:
        """Make an empty table.

        Args:
            runtime: wakes who waits.
            book: unpickles results.
            claim: what a future holds whose outcome contains these failures.
            abandon: tells ranks that their answers are no longer wanted.
        """
        self._runtime = runtime
        self._book = book
        self._claim = claim
        self._abandon = abandon
        self._lock = threading.RLock()
        self._ids = count(1)
        self._pending: dict[CallId, _Pending] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, plan: CallPlan[T], origin: str = "", numbers: Sequence[int] = ()) -> tuple[CallId, Future[T]]:
        """Register a call of `origin`, whose messages have these numbers and are then sent with the id returned."""
        call = next(self._ids)
        future: Future[T] = Future(self._runtime, partial(self._cancel, call), what=plan.text)
        collector: _Collector = Collector(plan.ranks, waits_for_all=plan.return_exceptions)
        pending = _Pending(plan, origin, numbers, collector, future)  # type: ignore[arg-type]
        if plan.timeout_s is not None:
            pending.timer = self._runtime.reactor.call_later(plan.timeout_s, partial(self._expire, call))
        self._pending[call] = pending
        return call, future

    def reply(self, message: Reply, frame: Frame) -> None:
        """Take one rank's reply. From any thread."""
        with self._lock:
            pending = self._pending.get(message.call)
            if pending is None:
                return
            if message.raised is None and message.refused is None:
                over = pending.collector.answered(message.rank, partial(self._load, message, frame))
            else:
                refused = message.refused
                if refused is not None and refused.key and pending.collector.waits_for(message.rank):
                    pending.keys.append(refused.key)
                over = pending.collector.failed(message.rank, partial(self._load_error, pending, message, frame))
            if over:
                self._finish(message.call, pending)

    def fail(self, call: CallId, rank: int, error: BaseException, key: str = "") -> None:
        """End one rank of a call with `error`."""
        with self._lock:
            pending = self._pending.get(call)
            if pending is None or not pending.collector.waits_for(rank):
                return
            if key:
                pending.keys.append(key)
            if pending.collector.failed(rank, lambda: error):
                self._finish(call, pending)

    def proc_gone(self, proc: str, gone: Gone) -> bool:
        """End what waits for a dead proc; True if anything did."""
        mesh, _, rank_text = proc.rpartition(".")
        rank = int(rank_text)
        with self._lock:
            waiting = [
                (call, pending)
                for call, pending in self._pending.items()
                if pending.plan.procs == mesh and pending.collector.waits_for(rank)
            ]
            for call, pending in waiting:
                self.fail(call, rank, lost(gone, pending.plan, rank), "" if gone.planned else proc)
        return bool(waiting)

    def undelivered(self, call: CallId, rank: int, proc: str, gone: Gone) -> None:
        """End one rank of a call whose message for the dead `proc` never left this process: nothing ran."""
        with self._lock:
            pending = self._pending.get(call)
            if pending is not None:
                error = lost(gone, pending.plan, rank, delivered=False)
                self.fail(call, rank, error, "" if gone.planned else proc)

    def end_all(self, error: Error) -> None:
        """End every call with `error`: the runtime closes."""
        with self._lock:
            for pending in list(self._pending.values()):
                pending.future.settle_error(error)
            self._pending.clear()

    def _finish(self, call: CallId, pending: _Pending) -> None:
        self._forget(call)
        claim = self._claim(pending.keys, pending.plan.passive) if pending.keys else None
        pending.future.settle(partial(_outcome, pending.plan, pending.collector), claim)

    def _forget(self, call: CallId) -> None:
        pending = self._pending.pop(call, None)
        if pending is not None and pending.timer is not None:
            self._runtime.reactor.cancel_timer(pending.timer)

    def _expire(self, call: CallId) -> None:
        with self._lock:
            pending = self._pending.get(call)
            if pending is None:
                return
            self._forget(call)
        plan = pending.plan
        late = pending.collector.pending
        named = [str(plan.point_of(rank)) or "its only rank" for rank in late]
        pending.future.settle_error(CallTimeout(plan.text, plan.timeout_s or 0.0, named))
        self._abandon_ranks(call, pending)

    def _cancel(self, call: CallId) -> None:
        with self._lock:
            pending = self._pending.get(call)
            if pending is None:
                return
            self._forget(call)
        self._abandon_ranks(call, pending)

    def _abandon_ranks(self, call: CallId, pending: _Pending) -> None:
        if pending.numbers:
            numbers = dict(zip(pending.collector.ranks, pending.numbers, strict=True))
            unwanted = [(rank, numbers[rank]) for rank in pending.collector.pending]
            self._abandon(pending.plan, pending.origin, call, unwanted)

    def _load(self, message: Reply, frame: Frame) -> object:
        return self._book.loads(frame.payload, frame.buffers, message.code)

    def _load_error(self, pending: _Pending, message: Reply, frame: Frame) -> BaseException:
        if message.refused is not None:
            return _refusal(message.refused, pending.plan)
        raised = message.raised
        assert raised is not None
        remote = ActorFailed(raised.type_name, raised.text, raised.traceback)
        if not frame.payload:
            return remote
        try:
            error = self._book.loads(frame.payload, frame.buffers, message.code)
        except Exception:
            return remote  # the exception's own code cannot be rebuilt here; its text and traceback can
        if not isinstance(error, BaseException):
            return remote
        error.__cause__ = remote
        return error


def _outcome(plan: CallPlan[object], collector: _Collector) -> object:
    errors = {rank: load() for rank, load in collector.failures.items()}
    if errors and not plan.return_exceptions:
        if plan.single:
            raise next(iter(errors.values()))
        raise CallError(
            plan.text,
            {plan.point_of(rank): error for rank, error in errors.items()},
            {plan.point_of(rank): load() for rank, load in collector.results.items()},
            [plan.point_of(rank) for rank in collector.pending],
        )
    values: list[object] = []
    for rank in collector.ranks:
        if rank in errors:
            values.append(errors[rank])
            continue
        try:
            values.append(collector.results[rank]())
        except Exception as error:
            if isinstance(error, Error):
                raise
            where = str(plan.point_of(rank))
            reason = f"{type(error).__name__}: {error}"
            raise NotPicklable(f"the result of {plan.text}" + (f" at {where}" if where else ""), reason) from error
    return plan.finish(values)


def lost(gone: Gone, plan: CallPlan[T], rank: int, *, delivered: bool = True) -> Error:
    """What a call gets from a rank whose proc is gone."""
    if gone.planned and not delivered:
        return MeshStopped(f"{plan.mesh} ({plan.text})")
    cause = gone.failure.cause
    failure = replace(
        gone.failure,
        cause=f"it was stopped on purpose before it had answered: {cause}" if gone.planned else cause,
        mesh=plan.mesh,
        rank=rank,
        point=dict(plan.point_of(rank)),
        class_name=plan.class_name,
        endpoint=plan.text,
    )
    return ReplyLost(failure) if delivered else MeshFailed(failure)


def _refusal(refused: Refused, plan: CallPlan[object]) -> Error:
    if refused.failure is not None:
        return ReplyLost(refused.failure) if refused.kind == "lost" else MeshFailed(refused.failure)
    if refused.kind == "stopped":
        return MeshStopped(plan.mesh)
    if refused.kind == "stale":
        meant, _, current = refused.text.partition(" ")
        return StaleIncarnation(plan.mesh, int(meant), int(current))
    if refused.kind == "expired":
        return CallTimeout(plan.text, plan.timeout_s or 0.0, [])
    return DeliveryError(f"{plan.text} was not delivered: {refused.text}")
