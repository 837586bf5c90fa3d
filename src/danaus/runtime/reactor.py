"""The event loop of a process: sockets, timers and waiting, shared by an I/O thread and whoever waits.

Leader and follower: all streams are in an inner epoll set; the I/O thread sleeps on an outer set that contains it. A
thread that has to wait anyway takes the inner set over (one `epoll_ctl`, no wake-up), handles what arrives itself and
gives it back before it returns to user code. A lone call thus crosses no extra thread; while user code runs, the I/O
thread has the streams. What measured best and why: docs/decisions/0002.
"""

import os
import select
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from danaus.errors import WrongThread
from danaus.protocol.timers import TimerQueue
from danaus.runtime.clock import Clock, MonotonicClock
from danaus.runtime.interrupts import InterruptShield

READABLE = select.EPOLLIN
WRITABLE = select.EPOLLOUT

_ALL_SIGNALS = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}


class Waiter:
    """One wait of one thread. `ready` is set once, by whoever ends the wait through `Reactor.wake`."""

    __slots__ = ("leading", "lock", "ready")

    def __init__(self) -> None:
        self.ready = False
        self.leading = False
        self.lock: threading.Lock | None = None


class Reactor:
    """Runs callbacks for descriptors, timers and posts, one at a time, never user code."""

    def __init__(self, name: str, clock: Clock | None = None, *, may_lead: bool = True) -> None:
        self.clock: Clock = clock or MonotonicClock()
        self.shield = InterruptShield(self._kick)
        self._name = name
        self._may_lead = may_lead
        self._main = threading.main_thread().ident
        self._streams = select.epoll()
        self._outer = select.epoll()
        self._kick_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._streams.register(self._kick_fd, READABLE)
        self._outer.register(self._streams.fileno(), READABLE)
        self._outer.register(self._wake_fd, READABLE)
        self._watched: dict[int, tuple[Callable[[int], None], Callable[[], object]]] = {
            self._kick_fd: (self._on_kick, partial(os.close, self._kick_fd))
        }
        self._posts: deque[Callable[[], None]] = deque()
        self._kicked = False
        self._timers: TimerQueue[Callable[[], None]] = TimerQueue()
        self._timers_lock = threading.Lock()
        self._lead = threading.Lock()
        self._driver = 0
        self._thread: threading.Thread | None = None
        self._closing = False
        self._closed = False
        self.disabled = False
        """True in a child that user code forked: nothing here may be touched."""
        this = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _after_fork(this))
        self.clock.subscribe(self._on_time_jump)

    def start(self) -> None:
        """Start the I/O thread."""
        self._thread = threading.Thread(target=self.run, name=self._name, daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def run(self) -> None:
        """Be the I/O thread until `close`."""
        streams_fd = self._streams.fileno()
        while not self._closing:
            with self._timers_lock:
                deadline = self._timers.next_deadline()
            events = self._outer.poll(self.clock.wait_s(deadline))
            for fd, _ in events:
                if fd == self._wake_fd:
                    _drain(fd)
                elif fd == streams_fd and self._lead.acquire(blocking=False):
                    try:
                        self._driver = threading.get_ident()
                        self._handle_streams(0)
                    finally:
                        self._driver = 0
                        self._lead.release()
            self._run_timers()
        self._lead.acquire()
        self._driver = threading.get_ident()
        self._on_kick(READABLE)
        self._closed = True
        for closable in (self._streams, self._outer):
            closable.close()
        os.close(self._kick_fd)
        os.close(self._wake_fd)

    def close(self) -> None:
        """End the I/O thread after the callbacks posted so far, and close what the reactor itself opened."""
        if self._closing:
            return
        self.post(self._begin_close)
        if self._thread is not None and self._thread.ident != threading.get_ident():
            self._thread.join()

    def _begin_close(self) -> None:
        self._closing = True
        self._interrupt_sleep()

    @property
    def is_driving(self) -> bool:
        """Whether the calling thread is the one that handles streams and timers now."""
        return self._driver == threading.get_ident()

    # ---- descriptors

    def register(self, fd: int, callback: Callable[[int], None], close: Callable[[], object]) -> None:
        """Call `callback(events)` when `fd` can be read, until `unregister`. `close` closes a forked child's copy."""
        self._watched[fd] = (callback, close)
        self._streams.register(fd, READABLE)

    def modify(self, fd: int, events: int) -> None:
        """Change what `fd` is watched for."""
        self._streams.modify(fd, events)

    def unregister(self, fd: int) -> None:
        """Forget `fd`; call before it is closed."""
        if self._watched.pop(fd, None) is not None:
            self._streams.unregister(fd)

    # ---- posts and timers

    def post(self, callback: Callable[[], None]) -> None:
        """Run `callback` soon on the driving thread. From any thread."""
        self._posts.append(callback)
        if not self._kicked:
            self._kicked = True
            self._kick()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        """Run `callback` on the I/O thread in `delay_s` seconds; returns a handle for `cancel_timer`."""
        deadline = self.clock.now() + delay_s
        with self._timers_lock:
            first = self._timers.next_deadline()
            handle = self._timers.schedule(deadline, callback)
        if first is None or deadline < first:
            self._interrupt_sleep()
        return handle

    def cancel_timer(self, handle: object) -> None:
        """Forget a timer; harmless when it has run."""
        with self._timers_lock:
            self._timers.cancel(handle)  # type: ignore[arg-type]

    def _run_timers(self) -> None:
        with self._timers_lock:
            due = self._timers.pop_due(self.clock.now())
        for callback in due:
            self.post(callback)

    # ---- waiting

    def check_may_block(self) -> None:
        """Raise `WrongThread` where a blocking wait would wait for itself."""
        if self._driver == threading.get_ident():
            raise WrongThread("this thread moves the messages it would wait for; use `await` or a callback")

    def wait(self, waiter: Waiter, timeout_s: float | None = None) -> bool:
        """Block until `waiter` is woken or the time is over; True when it was woken.

        The caller may be made to handle streams meanwhile, so that its own answer needs no other thread.
        """
        deadline = None if timeout_s is None else self.clock.now() + timeout_s
        while not waiter.ready and not self._closing:
            if deadline is not None and self.clock.now() >= deadline:
                break
            with self.shield:  # leaving it raises what interrupted the wait, or runs a handler and waits on
                leads = self._leads_here() and self._lead.acquire(blocking=False)
                if leads:
                    self._wait_leading(waiter, deadline)
            if not leads:
                self._wait_following(waiter, deadline)
        return waiter.ready

    def wake(self, waiter: Waiter) -> None:
        """End a wait. From any thread; once for each waiter."""
        waiter.ready = True
        if waiter.leading:
            if self._driver != threading.get_ident():
                self._kick()
        elif waiter.lock is not None:
            _release(waiter.lock)

    def _leads_here(self) -> bool:
        if not self._may_lead or self._closing:
            return False
        return threading.get_ident() != self._main or self.shield.spares_main

    def _wait_leading(self, waiter: Waiter, deadline: float | None) -> None:
        streams_fd = self._streams.fileno()
        try:
            self._driver = threading.get_ident()
            self._outer.modify(streams_fd, 0)
            waiter.leading = True
            while not waiter.ready and not self._closing and not self.shield.pending:
                if deadline is not None and self.clock.now() >= deadline:
                    break
                self._handle_streams(self.clock.wait_s(deadline))
        finally:
            waiter.leading = False
            self._driver = 0
            self._outer.modify(streams_fd, READABLE)
            self._lead.release()

    def _wait_following(self, waiter: Waiter, deadline: float | None) -> None:
        lock = threading.Lock()
        lock.acquire()
        waiter.lock = lock
        if waiter.ready:
            return
        if deadline is None:
            lock.acquire()
            return
        wait_s = self.clock.wait_s(deadline)
        timer = None
        if wait_s is None:  # a clock of its own: it tells when the time has come
            timer = self.call_later(deadline - self.clock.now(), partial(_release, lock))
        lock.acquire(timeout=-1 if wait_s is None else wait_s)
        if timer is not None:
            self.cancel_timer(timer)

    def _handle_streams(self, timeout_s: float | None) -> None:
        for fd, mask in self._streams.poll(timeout_s):
            watched = self._watched.get(fd)
            if watched is not None:
                try:
                    watched[0](mask)
                except Exception as error:
                    _report(error)

    def _on_kick(self, _: int) -> None:
        # In this order: a post that finds `_kicked` set is in the queue before that is read, another one kicks.
        _drain(self._kick_fd)
        self._kicked = False
        for _ in range(len(self._posts)):
            try:
                self._posts.popleft()()
            except Exception as error:
                _report(error)

    def _kick(self) -> None:
        if not self.disabled and not self._closed:
            os.eventfd_write(self._kick_fd, 1)

    def _interrupt_sleep(self) -> None:
        if not self.disabled and not self._closed:
            os.eventfd_write(self._wake_fd, 1)

    def _on_time_jump(self) -> None:
        self._interrupt_sleep()
        self._kick()

    def forget_in_child(self) -> None:
        """In a forked child: close copies of our descriptors and refuse to work."""
        self.disabled = self._closing = True
        if self._closed:
            return  # its numbers may be other descriptors by now
        for _, close in self._watched.values():
            close()
        os.close(self._wake_fd)
        self._streams.close()
        self._outer.close()


def _release(lock: threading.Lock) -> None:
    # Woken and timed out at once release it twice; the wait itself looks at `ready`.
    with suppress(RuntimeError):
        lock.release()


def _report(error: Exception) -> None:
    # A bug of Danaus's own. The loop goes on: it serves more than the one callback that broke.
    threading.excepthook(
        threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
    )


def _drain(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return


def _after_fork(this: "weakref.ref[Reactor]") -> None:
    reactor = this()
    if reactor is not None:
        reactor.forget_in_child()
