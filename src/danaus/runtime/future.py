"""`Future`: the only door between asynchronous messages and code that waits."""

import threading
from collections.abc import Callable, Generator
from typing import Generic, Protocol, TypeVar

from danaus.errors import CallCancelled
from danaus.runtime.callbacks import CallbackThread
from danaus.runtime.checks import check_timeout_s
from danaus.runtime.context import Interruptible, running
from danaus.runtime.reactor import Reactor, Waiter

T = TypeVar("T")


class Waiting(Protocol):
    """What a future needs of its runtime."""

    @property
    def reactor(self) -> Reactor:
        """Moves the messages while a thread waits."""

    @property
    def callbacks(self) -> CallbackThread:
        """Runs callbacks of users."""


class Claim(Protocol):
    """Failures that count as handled once somebody has received them."""

    def received(self) -> None:
        """The exception was raised or returned to user code."""


class Future(Generic[T]):
    """A value to come. `f.get(timeout_s)` in synchronous code, `await f` in asynchronous code.

    The value is unpickled by the first who asks for it, never on the thread that moves messages.
    """

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "_claim",
        "_done",
        "_error",
        "_load",
        "_lock",
        "_on_cancel",
        "_runtime",
        "_value",
        "_waiters",
        "_what",
    )

    def __init__(self, runtime: Waiting, on_cancel: Callable[[], None] | None = None, *, what: str = "") -> None:
        self._runtime = runtime
        self._what = what
        self._on_cancel = on_cancel
        self._lock = threading.Lock()
        self._done = False
        self._load: Callable[[], T] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        self._claim: Claim | None = None
        self._waiters: list[Waiter] | None = None
        self._callbacks: list[Callable[[], None]] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Future stays in its process; send its value: `f.get()` or `await f`")

    def __repr__(self) -> str:
        state = "cancelled" if self.cancelled() else "done" if self._done else "pending"
        return f"<Future {self._what}{' ' if self._what else ''}{state}>"

    # ---- for those who wait

    def get(self, timeout_s: float | None = None) -> T:
        """The value, waiting for it at most `timeout_s` seconds.

        Raises:
            TimeoutError: it is not there yet; a later `get` may find it. The call goes on.
            WrongThread: this thread would wait for itself; use `await`.
            What the call raised.
        """
        if timeout_s is not None:
            check_timeout_s(timeout_s, zero=True)
        now = running.get()
        actor = None if now is None or not now.actor.runs_here() else now.actor
        if actor is not None:
            actor.check_may_block()  # even if the value is here: code must not work by luck
        if not self._done:
            self._wait(actor, timeout_s)
        return self._outcome()

    def __await__(self) -> Generator[object, None, T]:
        if not self._done:
            import asyncio

            loop = asyncio.get_running_loop()
            settled: asyncio.Future[None] = loop.create_future()

            def on_settled() -> None:
                if not settled.done():
                    settled.set_result(None)

            def tell_loop() -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(on_settled)

            self.call_when_settled(tell_loop)
            try:
                yield from settled
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self._outcome()

    def done(self) -> bool:
        """Whether `get` would return or raise at once."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return isinstance(self._error, CallCancelled)

    def exception(self, timeout_s: float | None = None) -> BaseException | None:
        """What `get` would raise, or None; waits like `get`."""
        try:
            self.get(timeout_s)
        except TimeoutError:
            if not self._done:
                raise
        except BaseException as error:
            if error is not self._error:
                raise
        return self._error

    def cancel(self) -> bool:
        """Give up: waiters get `CallCancelled`, the actor is told. False if it had ended before."""
        if not self.settle_error(CallCancelled("the future was cancelled before it had a result")):
            return False
        if self._on_cancel is not None:
            self._on_cancel()
        return True

    def add_done_callback(self, callback: Callable[["Future[T]"], object]) -> None:
        """Run `callback(self)` once it is settled, on a thread for callbacks."""
        self.call_when_settled(lambda: self._runtime.callbacks.run_soon(lambda: callback(self)))

    # ---- for those who provide

    def settle(self, load: Callable[[], T], claim: Claim | None = None) -> bool:
        """Set how to get the value; `load` runs once, on the thread of the first who asks. False if it was settled.

        `claim` is told when somebody has received the outcome.
        """
        with self._lock:
            if self._done:
                return False
            self._load = load
            self._claim = claim
            self._done = True
        self._tell()
        return True

    def settle_error(self, error: BaseException, claim: Claim | None = None) -> bool:
        """Set what `get` raises. False if it was settled."""
        with self._lock:
            if self._done:
                return False
            self._error = error
            self._claim = claim
            self._done = True
        self._tell()
        return True

    def call_when_settled(self, callback: Callable[[], None]) -> None:
        """Run a short callback of the runtime's own on whichever thread settles, or now."""
        with self._lock:
            if not self._done:
                if self._callbacks is None:
                    self._callbacks = []
                self._callbacks.append(callback)
                return
        callback()

    def _tell(self) -> None:
        # `_done` is set: whoever comes to wait from here on sees it, so the lists no longer grow.
        if self._waiters is not None:
            for waiter in self._waiters:
                self._runtime.reactor.wake(waiter)
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def _wait(self, actor: Interruptible | None, timeout_s: float | None) -> None:
        reactor = self._runtime.reactor
        reactor.check_may_block()
        if actor is not None:
            self._wait_as_actor(actor, timeout_s)
            return
        waiter = Waiter()
        if self._enlist(waiter) and not reactor.wait(waiter, timeout_s):
            self._give_up(waiter, timeout_s)

    def _wait_as_actor(self, actor: Interruptible, timeout_s: float | None) -> None:
        """Wait on an actor's thread, where a failure of something it owns may have to be handled meanwhile."""
        reactor = self._runtime.reactor
        deadline = None if timeout_s is None else reactor.clock.now() + timeout_s
        while not self._done:
            waiter = Waiter()
            if not self._enlist(waiter):
                return
            actor.set_wake(lambda waiter=waiter: reactor.wake(waiter))  # type: ignore[misc]
            try:
                left_s = None if deadline is None else max(0.0, deadline - reactor.clock.now())
                woken = reactor.wait(waiter, left_s)
            finally:
                actor.set_wake(None)
            if not woken:
                self._give_up(waiter, timeout_s)
                return
            self._leave(waiter)
            actor.run_urgent()

    def _enlist(self, waiter: Waiter) -> bool:
        with self._lock:
            if self._done:
                return False
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            return True

    def _leave(self, waiter: Waiter) -> None:
        with self._lock:
            if not self._done and self._waiters is not None and waiter in self._waiters:
                self._waiters.remove(waiter)

    def _give_up(self, waiter: Waiter, timeout_s: float | None) -> None:
        self._leave(waiter)
        if not self._done:
            raise TimeoutError(f"no result within {timeout_s:g} s; the call goes on, cancel() ends it")

    def _outcome(self) -> T:
        if self._load is not None:
            with self._lock:
                if self._load is not None:
                    try:
                        self._value = self._load()
                    except Exception as error:
                        self._error = error
                    self._load = None  # not before: another thread may ask, or Ctrl-C end this one
        if self._claim is not None:
            self._claim.received()
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]
