"""`ActorCell`: one actor in this process: its thread, and its life from construction to clean-up."""

import inspect
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Protocol

from danaus.errors import CallCancelled, Error, Failure, NotPicklable, WrongThread
from danaus.protocol.frame import Frame
from danaus.protocol.message import NO_REPLY, Cancel, Cast, Raised, Refused, Reply, SpawnActor
from danaus.runtime.context import Running, running
from danaus.runtime.future import Future
from danaus.runtime.mailbox import Answer, Delivery, Mailbox
from danaus.runtime.pickling import CodeBook, Pickled
from danaus.runtime.reactor import Reactor, Waiter
from danaus.runtime.regions import region_of

StopChild = Callable[[float, bool], Future[None]]
"""Stops a mesh that an actor owns, given the time left and whether to do it without draining."""

_NOTHING = Pickled(b"")
_Arguments = tuple[tuple[object, ...], dict[str, object]]


class ActorLoop(Protocol):
    """The loop of an actor with asynchronous endpoints (`actor_loop.ActorLoop`, which costs an import of asyncio)."""

    def run(self, coroutine: Coroutine[object, object, object], purpose: object = None) -> object: ...
    def run_idle(self) -> None: ...
    def leave_idle(self) -> None: ...
    def call_soon(self, callback: Callable[[], object]) -> None: ...
    def cancel(self, purpose: object) -> None: ...
    def spawn(self, coroutine: Coroutine[object, object, object]) -> None: ...
    def runs_here(self) -> bool: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EndpointFunction:
    """What a cell runs for a message: declared on a class by `endpoint`."""

    name: str
    function: Callable[..., object]
    is_async: bool


class Declared(Protocol):
    """An attribute of an actor's class that declares an endpoint."""

    @property
    def endpoint_function(self) -> EndpointFunction:
        """The function behind it."""


class CellOwner(Protocol):
    """What a cell needs of its runtime."""

    @property
    def id(self) -> str:
        """The proc's id."""

    @property
    def reactor(self) -> Reactor:
        """Moves messages."""

    @property
    def book(self) -> CodeBook:
        """Pickles."""

    def where(self) -> tuple[str, int]:
        """Host name and pid, for reports."""

    def tell_owner(self, spawn: SpawnActor, key: str, failure: Failure) -> None:
        """Report a failure that no caller hears of."""

    def cell_ended(self, cell: "ActorCell", refusal: Refused) -> None:
        """The actor is no more; later messages get `refusal`."""


class ActorCell:
    """Runs one actor on a thread of its own: one message at a time, in mailbox order.

    Synchronous endpoints run with no event loop running; asynchronous ones on the actor's own loop, which also runs
    between messages, so that tasks they leave go on.
    """

    def __init__(self, owner: CellOwner, spawn: SpawnActor, frame: Frame, answer: Answer) -> None:
        self.spawn = spawn
        self.mailbox = Mailbox()
        self.children: dict[str, StopChild] = {}
        """Stops for the meshes that this actor owns, by mesh id."""
        self._owner = owner
        self._construction = (frame, answer)
        self._instance: object = None
        self._loop: ActorLoop | None = None
        self._idle: Waiter | None = None
        self._wake: Callable[[], None] | None = None
        self._urgent: deque[Callable[[], object]] = deque()
        self._stop: tuple[float, bool] | None = None
        self._stop_answers: list[Callable[[], None]] = []
        self._ended = False
        self._refusal: Refused | None = None
        self._endpoints: dict[str, EndpointFunction] = {}
        self._thread = threading.Thread(target=self._run, name=f"danaus-{spawn.name}", daemon=True)

    @property
    def name(self) -> str:
        """Name of the mesh and the class, for reports."""
        return self.spawn.name

    def start(self) -> None:
        """Start the thread; it constructs the actor first."""
        self._thread.start()

    # ---- from the driving thread and from senders

    def deliver(self, delivery: Delivery) -> None:
        """Put a message into the mailbox, or refuse it."""
        if self.mailbox.put(delivery):
            self._rouse()
        else:
            _refuse(delivery, self._refusal or Refused("stopped"))

    def skip(self, origin: str, first: int, last: int) -> None:
        """Messages `first` to `last` of `origin` will not come: what waits behind them may run."""
        self.mailbox.gap(origin, first, last)
        self._rouse()

    def cancel(self, message: Cancel) -> None:
        """Withdraw a queued message; cancel it if it runs on the loop."""
        taken = self.mailbox.cancel(message.origin, message.call, message.number)
        if taken is None:
            self._rouse()  # what waited for it may be next
        elif self._loop is not None:
            self._loop.cancel(taken)

    def stop(self, timeout_s: float, *, now: bool, done: Callable[[], None]) -> None:
        """Refuse new messages; drain unless `now`; stop children; clean up; end. `done` is called once, in time."""
        self._stop_answers.append(done)
        if self._ended:
            self._stopped()
            return
        self.mailbox.close()
        if self._stop is None or now:
            self._stop = (self._owner.reactor.clock.now() + timeout_s, now)
        self._owner.reactor.call_later(timeout_s, self._stopped)
        if now:
            for delivery in self.mailbox.drain():
                _refuse(delivery, Refused("stopped"))
            if self._loop is not None and self.mailbox.taken is not None:
                self._loop.cancel(self.mailbox.taken)
        self._rouse()

    def crash(self) -> None:
        """The proc died: end without clean-up, as soon as user code lets go of the thread."""
        self._instance = None
        self.stop(0.0, now=True, done=lambda: None)

    def urge(self, action: Callable[[], object]) -> None:
        """Run `action` on the actor's thread as soon as it is idle or waits. A coroutine it returns is awaited."""
        self._urgent.append(action)
        if self._ended:
            self.run_urgent()
            return
        loop, wake = self._loop, self._wake
        if loop is not None:
            loop.call_soon(self._run_urgent_on_loop)
        if wake is not None:
            wake()
        self._rouse()

    # ---- Interruptible

    def runs_here(self) -> bool:
        """Whether the calling thread is the actor's own."""
        return self._thread.ident == threading.get_ident()

    def check_may_block(self) -> None:
        """Raise `WrongThread` inside an asynchronous endpoint."""
        if self._loop is not None and self._loop.runs_here():
            raise WrongThread("an async endpoint would wait for its own loop; use `await future` instead of get()")

    def run_urgent(self) -> None:
        """Run what was urged, here and now; no loop runs on this thread."""
        while self._urgent:
            result = self._urgent.popleft()()
            if inspect.iscoroutine(result):
                self._run_coroutine(result)

    def set_wake(self, wake: Callable[[], None] | None) -> None:
        """How to end the wait that this actor's thread is in."""
        self._wake = wake
        if wake is not None and self._urgent:
            wake()

    # ---- the actor's thread

    def _run(self) -> None:
        # The thread that made this one blocks all signals; what the actor starts must not inherit that.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        running.set(Running(self._owner, self, None))
        if self._construct():
            while (delivery := self._next()) is not None:
                self._handle(delivery)
                self.mailbox.taken = None
                if self._refusal is not None:
                    break
        self._end()

    def _construct(self) -> bool:
        frame, answer = self._construction
        del self._construction
        spawn = self.spawn
        try:
            cls, args, kwargs = self._owner.book.loads_call(frame.payload, spawn.code, frame.buffers)
            assert isinstance(cls, type)
            self._endpoints = _endpoints_of(cls)
            if any(endpoint.is_async for endpoint in self._endpoints.values()):
                self._loop = _new_loop()
            self._instance = cls(*args, **kwargs)
        except BaseException as error:
            failure = self._failure("constructor_raised", error)
            self._refusal = Refused("dead", failure=failure, key=f"{spawn.actor}.{spawn.rank}")
            answer(Reply(spawn.call, spawn.rank, refused=self._refusal), _NOTHING)
            return False
        answer(Reply(spawn.call, spawn.rank), Pickled(b"N."))
        return True

    def _next(self) -> Delivery | None:
        """The next message; None when it is time to end."""
        while True:
            if self._urgent:
                self.run_urgent()
            delivery = self.mailbox.get_nowait()
            if delivery is not None:
                return delivery
            if self._stop is not None:
                return None
            if self._loop is not None:
                self._loop.run_idle()
                continue
            waiter = Waiter()
            self._idle = waiter
            if len(self.mailbox) or self._urgent or self._stop is not None:
                continue
            self._owner.reactor.wait(waiter)

    def _rouse(self) -> None:
        loop = self._loop
        if loop is not None:
            loop.leave_idle()
            return
        idle, self._idle = self._idle, None
        if idle is not None:
            self._owner.reactor.wake(idle)

    def _handle(self, delivery: Delivery) -> None:
        cast = delivery.cast
        if delivery.deadline is not None and self._owner.reactor.clock.now() >= delivery.deadline:
            _refuse(delivery, Refused("expired"))
            return
        running.set(Running(self._owner, self, cast))
        self._run_endpoint(delivery)

    def _run_endpoint(self, delivery: Delivery) -> None:
        cast, frame = delivery.cast, delivery.frame
        rank = self.spawn.rank
        book = self._owner.book
        try:
            endpoint = self._endpoints.get(cast.endpoint)
            if endpoint is None:
                raise AttributeError(f"{self.spawn.class_name} has no endpoint {cast.endpoint!r} in this proc")
            try:
                arguments: _Arguments = book.loads(frame.payload, frame.buffers, cast.code)  # type: ignore[assignment]
                args, kwargs = arguments
            except Exception as error:
                where = f"an argument of {self.name}.{cast.endpoint}"
                raise NotPicklable(where, f"it cannot be rebuilt there: {type(error).__name__}: {error}") from error
            if endpoint.is_async:
                value = self._run_coroutine(endpoint.function(self._instance, *args, **kwargs), delivery)
            else:
                value = endpoint.function(self._instance, *args, **kwargs)
            if cast.call == NO_REPLY:
                return
            pickled = book.dumps(value, what=f"the result of {self.name}.{cast.endpoint}")
            delivery.answer(Reply(cast.call, rank, code=pickled.code_ids), pickled)
        except Exception as error:
            if self._stop is not None and isinstance(error, CallCancelled):
                failure = self._failure("stopped", error, cast.endpoint)
                _refuse(delivery, Refused("lost", failure=replace(failure, cause="it was stopped while it ran this")))
            else:
                self._raised(delivery, error)
        except BaseException as error:
            failure = self._failure("actor_exited", error, cast.endpoint)
            key = f"{self.spawn.actor}.{rank}"
            self._refusal = Refused("dead", failure=failure, key=key)
            delivery.answer(Reply(cast.call, rank, refused=Refused("lost", failure=failure, key=key)), _NOTHING)
            self._owner.tell_owner(self.spawn, key, failure)

    def _run_coroutine(self, coroutine: object, purpose: object = None) -> object:
        assert isinstance(coroutine, Coroutine)
        if self._loop is not None:
            return self._loop.run(coroutine, purpose)
        from danaus.runtime.actor_loop import run_once

        return run_once(coroutine)

    def _raised(self, delivery: Delivery, error: BaseException) -> None:
        cast = delivery.cast
        if cast.call == NO_REPLY:
            failure = self._failure("endpoint_raised", error, cast.endpoint)
            key = f"{self.spawn.actor}.{self.spawn.rank}/{cast.origin}/{cast.runs[0][2]}"
            self._owner.tell_owner(self.spawn, key, failure)
            return
        raised = Raised(type(error).__name__, _text_of(error), _traceback_of(error))
        try:
            pickled = self._owner.book.dumps(error, what="the exception")
        except NotPicklable:
            pickled = _NOTHING
        delivery.answer(Reply(cast.call, self.spawn.rank, raised=raised, code=pickled.code_ids), pickled)

    def _run_urgent_on_loop(self) -> None:
        while self._urgent:
            result = self._urgent.popleft()()
            if inspect.iscoroutine(result):
                assert self._loop is not None
                self._loop.spawn(result)

    # ---- the end

    def _end(self) -> None:
        refusal = self._refusal or Refused("stopped")
        self._refusal = refusal
        self.mailbox.close()
        for delivery in self.mailbox.drain():
            _refuse(delivery, refusal)
        deadline, now = self._stop or (self._owner.reactor.clock.now() + 10.0, True)
        self._stop = (deadline, now)
        running.set(Running(self._owner, self, None))
        self._stop_children(deadline, now)
        if self._instance is not None:
            self._clean_up(refusal)
        if self._loop is not None:
            self._loop.close()
        self._instance = None
        self._owner.cell_ended(self, refusal)
        self._ended = True  # before it answers: whoever comes later answers itself
        self._stopped()
        self.run_urgent()  # a failure that it can no longer handle goes on up

    def _stop_children(self, deadline: float, now: bool) -> None:
        clock = self._owner.reactor.clock
        stops = [stop(max(0.0, deadline - clock.now()), now) for stop in list(self.children.values())]
        for future in stops:
            try:
                future.get(max(0.0, deadline - clock.now()) + 1.0)
            except (Error, TimeoutError):
                continue  # a child that is dead or does not end in time is its agent's to kill

    def _clean_up(self, refusal: Refused) -> None:
        clean_up = getattr(self._instance, "__cleanup__", None)
        if clean_up is None:
            return
        cause = None if refusal.failure is None else Error(refusal.failure.cause)
        try:
            result = clean_up(cause)
            if inspect.iscoroutine(result):
                self._run_coroutine(result)
        except BaseException as error:
            failure = self._failure("cleanup_raised", error, "__cleanup__")
            self._owner.tell_owner(self.spawn, f"{self.spawn.actor}.{self.spawn.rank}/cleanup", failure)

    def _stopped(self) -> None:
        answers, self._stop_answers = self._stop_answers, []
        for done in answers:
            done()

    def supervise(self, failure: Failure, answered: Callable[[bool], None]) -> None:
        """Ask the actor's `__supervise__`; `answered(True)` only if it returned True."""
        self.urge(lambda: self._ask(failure, answered))

    def _ask(self, failure: Failure, answered: Callable[[bool], None]) -> Coroutine[object, object, None] | None:
        hook = getattr(self._instance, "__supervise__", None)
        if hook is None:
            answered(False)
            return None
        try:
            result = hook(failure)
        except Exception as error:
            self._supervise_raised(error)
            answered(False)
            return None
        if not inspect.iscoroutine(result):
            answered(result is True)
            return None

        async def finish() -> None:
            try:
                answered(await result is True)
            except Exception as error:
                self._supervise_raised(error)
                answered(False)

        return finish()

    def _supervise_raised(self, error: Exception) -> None:
        failure = self._failure("supervise_raised", error, "__supervise__")
        self._owner.tell_owner(self.spawn, f"{self.spawn.actor}.{self.spawn.rank}/{id(error)}", failure)

    def _failure(self, kind: str, error: BaseException, endpoint: str = "") -> Failure:
        host, pid = self._owner.where()
        text = _text_of(error)
        cause = f"{type(error).__name__}: {text}" if text else type(error).__name__
        if kind == "constructor_raised":
            cause = f"the constructor raised {cause}"
        return Failure(
            kind=kind,
            mesh=self.spawn.name,
            rank=self.spawn.rank,
            point=self._point(),
            cause=cause,
            class_name=self.spawn.class_name,
            endpoint=endpoint,
            host=host,
            pid=pid,
            traceback=_traceback_of(error),
        )

    def _point(self) -> dict[str, int]:
        region = region_of(self.spawn.region)
        return dict(region.extent.point(region.index_of(self.spawn.rank)))


def _endpoints_of(cls: type) -> dict[str, EndpointFunction]:
    found = {}
    for name in dir(cls):
        declared = getattr(getattr(cls, name, None), "endpoint_function", None)
        if isinstance(declared, EndpointFunction):
            found[name] = declared
    return found


def _refuse(delivery: Delivery, refusal: Refused) -> None:
    cast: Cast = delivery.cast
    if cast.call != NO_REPLY:
        delivery.answer(Reply(cast.call, cast.runs[0][0], refused=refusal), _NOTHING)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"<its __str__ raised {type(broken).__name__}>"


def _traceback_of(error: BaseException) -> str:
    """The traceback without the runtime's own frames at its top."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_globals.get("__name__", "").startswith(("danaus.", "asyncio")):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))


def _new_loop() -> ActorLoop:
    from danaus.runtime import actor_loop

    return actor_loop.ActorLoop()
