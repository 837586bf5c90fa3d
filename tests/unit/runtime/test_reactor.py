"""The event loop of a process: posts, timers, descriptors, and threads that wait."""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator

import pytest

from danaus.errors import WrongThread
from danaus.runtime.reactor import READABLE, WRITABLE, Reactor, Waiter
from danaus.testing.clock import VirtualClock

SOON_S = 10.0
"""Never reached when all is well."""


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def reactor(clock: VirtualClock) -> Iterator[Reactor]:
    """Running, with a clock that stands still."""
    reactor = Reactor("test-io", clock)
    reactor.start()
    yield reactor
    reactor.close()


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """What callbacks raised."""
    raised: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))
    return raised


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:  # the test closed it
            continue


def settle(reactor: Reactor) -> None:
    """Return once all that was posted before has run."""
    done = threading.Event()
    reactor.post(done.set)
    assert done.wait(SOON_S)


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


# ---- posts


def test_posts_run_in_their_order_on_the_driving_thread(reactor: Reactor) -> None:
    ran: list[tuple[int, bool]] = []
    for number in range(5):
        reactor.post(lambda number=number: ran.append((number, reactor.is_driving)))
    settle(reactor)
    assert ran == [(number, True) for number in range(5)]
    assert not reactor.is_driving


def test_a_post_may_post_again(reactor: Reactor) -> None:
    ran: list[int] = []
    done = threading.Event()

    def again(number: int) -> None:
        ran.append(number)
        if number < 100:
            reactor.post(lambda: again(number + 1))
        else:
            done.set()

    reactor.post(lambda: again(0))
    assert done.wait(SOON_S)
    assert ran == list(range(101))


def test_posts_of_many_threads_all_run_and_each_threads_in_order(reactor: Reactor) -> None:
    ran: list[tuple[int, int]] = []

    def post(thread: int) -> None:
        for number in range(300):
            reactor.post(lambda number=number: ran.append((thread, number)))

    threads = [in_thread(lambda thread=thread: post(thread)) for thread in range(4)]
    for thread in threads:
        thread.join()
    settle(reactor)
    for number in range(4):
        assert [each for thread, each in ran if thread == number] == list(range(300))


def test_what_was_posted_before_it_starts_runs_when_it_does(clock: VirtualClock) -> None:
    reactor = Reactor("test-io", clock)
    ran: list[int] = []
    reactor.post(lambda: ran.append(1))
    reactor.start()
    settle(reactor)
    reactor.close()
    assert ran == [1]


def test_a_callback_that_raises_is_reported_and_the_loop_goes_on(
    reactor: Reactor, clock: VirtualClock, pipe: tuple[int, int], broken: list[BaseException | None]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    reading, writing = pipe
    reactor.post(fail)
    settle(reactor)
    reactor.call_later(1.0, fail)
    clock.advance(1.0)

    def read(events: int) -> None:
        os.read(reading, 1)
        fail()

    reactor.post(lambda: reactor.register(reading, read, lambda: None))
    os.write(writing, b"xy")
    ran = threading.Event()
    reactor.call_later(1.0, ran.set)
    while not ran.wait(0.001):
        clock.advance(1.0)
    while len(broken) < 4:
        settle(reactor)
    assert [str(error) for error in broken] == ["a bug"] * 4
    reactor.post(lambda: reactor.unregister(reading))
    settle(reactor)


# ---- timers


def test_timers_run_when_their_time_has_come_earliest_first(reactor: Reactor, clock: VirtualClock) -> None:
    ran: list[str] = []
    done = threading.Event()
    reactor.call_later(3.0, done.set)
    reactor.call_later(2.0, lambda: ran.append("second"))
    reactor.call_later(1.0, lambda: ran.append("first"))
    clock.advance(1.9)
    settle(reactor)
    clock.advance(1.1)
    assert done.wait(SOON_S)
    assert ran == ["first", "second"]


def test_a_timer_before_all_others_wakes_the_loop_that_sleeps_for_them(reactor: Reactor, clock: VirtualClock) -> None:
    early, late = threading.Event(), threading.Event()
    reactor.call_later(100.0, late.set)
    clock.wait_sleeping()
    reactor.call_later(1.0, early.set)
    clock.advance(1.0)
    assert early.wait(SOON_S)
    assert not late.is_set()


def test_a_cancelled_timer_does_not_run(reactor: Reactor, clock: VirtualClock) -> None:
    ran: list[str] = []
    done = threading.Event()
    handle = reactor.call_later(1.0, lambda: ran.append("cancelled"))
    reactor.call_later(2.0, done.set)
    reactor.cancel_timer(handle)
    clock.advance(5.0)
    assert done.wait(SOON_S)
    reactor.cancel_timer(handle)
    assert ran == []


def test_timers_of_the_real_clock_run() -> None:
    reactor = Reactor("test-io")
    reactor.start()
    done = threading.Event()
    reactor.call_later(0.001, done.set)
    assert done.wait(SOON_S)
    reactor.close()


def test_a_timer_further_away_than_a_poller_can_sleep_stops_nothing() -> None:
    reactor = Reactor("test-io")
    reactor.start()
    reactor.call_later(1e12, lambda: None)
    settle(reactor)
    done = threading.Event()
    reactor.call_later(0.001, done.set)
    assert done.wait(SOON_S)
    reactor.close()


# ---- descriptors


def test_a_descriptor_is_told_of_until_it_is_forgotten(reactor: Reactor, pipe: tuple[int, int]) -> None:
    reading, writing = pipe
    got: list[bytes] = []
    told = threading.Event()

    def read(events: int) -> None:
        assert events & READABLE
        got.append(os.read(reading, 1))
        told.set()

    reactor.register(reading, read, lambda: None)
    for word in (b"a", b"b"):
        told.clear()
        os.write(writing, word)
        assert told.wait(SOON_S)
    reactor.unregister(reading)
    os.write(writing, b"c")
    settle(reactor)
    assert got == [b"a", b"b"]
    reactor.unregister(reading)


def test_a_descriptor_can_be_watched_for_room(reactor: Reactor, pipe: tuple[int, int]) -> None:
    _, writing = pipe
    told = threading.Event()

    def on_ready(events: int) -> None:
        if events & WRITABLE:
            reactor.modify(writing, 0)
            told.set()

    reactor.register(writing, on_ready, lambda: None)
    reactor.modify(writing, WRITABLE)
    assert told.wait(SOON_S)
    reactor.unregister(writing)


# ---- waiting


def test_a_wait_ends_when_another_thread_wakes_it(reactor: Reactor) -> None:
    waiter = Waiter()
    thread = in_thread(lambda: reactor.wake(waiter))
    assert reactor.wait(waiter)
    thread.join()


def test_a_wait_that_was_woken_before_it_began_returns_at_once(reactor: Reactor) -> None:
    waiter = Waiter()
    reactor.wake(waiter)
    assert reactor.wait(waiter)


def waits(reactor: Reactor, waiter: Waiter, timeout_s: float | None = None) -> tuple[threading.Thread, list[bool]]:
    """A thread that waits, and where it puts the outcome."""
    outcome: list[bool] = []
    return in_thread(lambda: outcome.append(reactor.wait(waiter, timeout_s))), outcome


def test_a_thread_that_waits_handles_what_arrives_itself(reactor: Reactor) -> None:
    waiter, drivers = Waiter(), list[int]()
    thread, outcome = waits(reactor, waiter)
    while not waiter.leading:
        settle(reactor)
    reactor.post(lambda: drivers.append(threading.get_ident()))
    settle(reactor)
    reactor.wake(waiter)
    thread.join(SOON_S)
    assert drivers == [thread.ident]
    assert outcome == [True]


def test_a_wait_can_be_ended_by_what_the_waiting_thread_handles_itself(reactor: Reactor) -> None:
    waiter = Waiter()
    thread, outcome = waits(reactor, waiter)
    while not waiter.leading:
        settle(reactor)
    reactor.post(lambda: reactor.wake(waiter))
    thread.join(SOON_S)
    assert outcome == [True]


def test_a_reactor_whose_threads_may_not_lead_lets_its_own_thread_handle_what_arrives(clock: VirtualClock) -> None:
    reactor = Reactor("test-io", clock, may_lead=False)
    reactor.start()
    waiter, drivers = Waiter(), list[str]()
    thread, outcome = waits(reactor, waiter)
    reactor.post(lambda: drivers.append(threading.current_thread().name))
    reactor.post(lambda: reactor.wake(waiter))
    thread.join(SOON_S)
    reactor.close()
    assert drivers == ["test-io"]
    assert outcome == [True]


def test_many_threads_wait_at_once_and_each_is_woken(reactor: Reactor) -> None:
    waiters = [Waiter() for _ in range(8)]
    waiting = [waits(reactor, waiter) for waiter in waiters]
    for waiter in waiters:
        reactor.post(lambda waiter=waiter: reactor.wake(waiter))
    for thread, outcome in waiting:
        thread.join(SOON_S)
        assert outcome == [True]


def test_the_loop_goes_on_after_a_thread_that_handled_what_arrived_has_left(reactor: Reactor) -> None:
    for _ in range(20):
        waiter = Waiter()
        thread, _ = waits(reactor, waiter)
        settle(reactor)
        reactor.wake(waiter)
        settle(reactor)
        thread.join(SOON_S)


@pytest.mark.parametrize("may_lead", [True, False])
def test_a_wait_that_nobody_ends_is_over_when_its_time_is(clock: VirtualClock, may_lead: bool) -> None:
    reactor = Reactor("test-io", clock, may_lead=may_lead)
    reactor.start()
    waiter = Waiter()
    thread, outcome = waits(reactor, waiter, 5.0)
    clock.wait_sleeping()
    clock.advance(4.9)
    clock.wait_sleeping()
    settle(reactor)
    assert outcome == []
    clock.advance(0.2)
    thread.join(SOON_S)
    assert outcome == [False]
    reactor.close()


@pytest.mark.parametrize("may_lead", [True, False])
def test_time_is_over_by_the_real_clock_too(may_lead: bool) -> None:
    reactor = Reactor("test-io", may_lead=may_lead)
    reactor.start()
    thread, outcome = waits(reactor, Waiter(), 0.005)
    thread.join(SOON_S)
    assert outcome == [False]
    thread, outcome = waits(reactor, Waiter(), 0.0)
    thread.join(SOON_S)
    assert outcome == [False]
    reactor.close()


@pytest.mark.parametrize("may_lead", [True, False])
def test_a_wait_may_be_longer_than_a_poller_can_sleep(may_lead: bool) -> None:
    reactor = Reactor("test-io", may_lead=may_lead)
    reactor.start()
    waiter = Waiter()
    thread, outcome = waits(reactor, waiter, 1e12)
    settle(reactor)
    reactor.wake(waiter)
    thread.join(SOON_S)
    assert outcome == [True]
    reactor.close()


def test_the_driving_thread_may_not_wait_for_itself(reactor: Reactor) -> None:
    raised: list[type[Exception]] = []

    def check() -> None:
        try:
            reactor.check_may_block()
        except WrongThread as error:
            raised.append(type(error))

    reactor.post(check)
    settle(reactor)
    assert raised == [WrongThread]
    reactor.check_may_block()


# ---- the end


def test_closing_runs_what_was_posted_and_joins_the_thread(clock: VirtualClock) -> None:
    reactor = Reactor("test-io", clock)
    reactor.start()
    ran: list[int] = []
    for number in range(50):
        reactor.post(lambda number=number: ran.append(number))
    reactor.close()
    assert ran == list(range(50))
    assert not any(thread.name == "test-io" for thread in threading.enumerate())


def test_what_comes_after_the_end_does_nothing(clock: VirtualClock) -> None:
    reactor = Reactor("test-io", clock)
    reactor.start()
    reactor.close()
    ran: list[int] = []
    reactor.post(lambda: ran.append(1))
    reactor.cancel_timer(reactor.call_later(1.0, lambda: ran.append(2)))
    reactor.call_later(1.0, lambda: ran.append(3))
    clock.advance(2.0)
    assert not reactor.wait(Waiter(), 1.0)
    reactor.close()
    assert ran == []


def test_a_reactor_can_be_closed_while_a_thread_handles_what_arrives(clock: VirtualClock) -> None:
    reactor = Reactor("test-io", clock)
    reactor.start()
    waiter = Waiter()
    thread, outcome = waits(reactor, waiter)
    while not waiter.leading:
        settle(reactor)
    reactor.close()
    thread.join(SOON_S)
    assert outcome == [False]


def test_its_thread_takes_no_signals(reactor: Reactor) -> None:
    masks: list[set[signal.Signals | int]] = []
    reactor.post(lambda: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
    settle(reactor)
    assert {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} <= masks[0]


def test_a_forked_child_closes_its_copies_and_refuses_to_work(reactor: Reactor, pipe: tuple[int, int]) -> None:
    reading, writing = os.pipe()
    watched, other_end = pipe
    reactor.register(watched, lambda events: None, lambda: os.close(watched))
    settle(reactor)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks among threads
        child = os.fork()
    if not child:
        held = os.path.exists(f"/proc/self/fd/{watched}")
        reactor.post(lambda: None)
        os.write(writing, f"{reactor.disabled} {held} {reactor.wait(Waiter(), 1.0)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"True False False"
    for fd in (reading, writing):
        os.close(fd)
    settle(reactor)
    reactor.unregister(watched)
    assert other_end
