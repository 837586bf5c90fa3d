"""Semantics 16 to 18: a death is known at once, ends what waited on it with its cause, and poisons nothing else."""

import ctypes
import os
import signal
import sys
import threading
import time

import msgspec
import psutil
import pytest

from behaviour.actors import Counter, Echo, Where
from behaviour.conftest import Cluster
from danaus import Actor, CallError, DeliveryError, Failure, MeshFailed, ReplyLost, StaleIncarnation, endpoint
from danaus.protocol.message import Cast, Message
from danaus.runtime.proc import Proc


class Mortal(Actor):
    """Dies in many ways."""

    @endpoint
    def die(self, how: str) -> None:
        sys.stderr.write("first line\nlast line\n")
        sys.stderr.flush()
        if how == "exit":
            os._exit(5)
        if how == "segfault":
            ctypes.string_at(0)
        os.kill(os.getpid(), getattr(signal, how))
        threading.Event().wait(10)  # the signal may be another thread's to take

    @endpoint
    async def block(self) -> None:
        import asyncio

        await asyncio.get_running_loop().create_future()


class Master(Actor):
    """Owns procs of its own."""

    @endpoint
    def spawn(self) -> Counter:
        from danaus import this_host

        return this_host().spawn_procs({"gpus": 2}, name="slaves").spawn("counter", Counter)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("SIGKILL", "was killed by SIGKILL"),
        ("SIGTERM", "exited with code 143"),
        ("SIGABRT", "was killed by SIGABRT"),
        ("SIGRTMIN", "was killed by SIGRTMIN"),
        ("segfault", "was killed by SIGSEGV"),
        ("exit", "exited with code 5"),
    ],
)
def test_a_call_in_flight_ends_with_the_whole_cause(real_cluster: Cluster, how: str, text: str) -> None:
    procs = real_cluster.hosts.spawn_procs({"gpus": 2}, name="workers")
    mortal, where = procs.spawn("mortal", Mortal), procs.spawn("where", Where)
    pid = where.slice(gpus=1).os_pid.call_one().get(20)
    with pytest.raises(ReplyLost, match=text) as caught:
        mortal.slice(gpus=1).die.call_one(how).get(20)
    failure = caught.value.failure
    assert isinstance(failure, Failure)
    assert (failure.mesh, failure.class_name, failure.endpoint) == ("mortal", "Mortal", "mortal.die")
    assert (failure.rank, failure.point, failure.pid) == (1, {}, pid)
    assert failure.host == os.uname().nodename
    if how != "SIGTERM":  # which ends it in order: what it says on the way is its own business
        assert (failure.exit_code, failure.signal) == (
            (5, None) if how == "exit" else (None, "SIGSEGV" if how == "segfault" else how)
        )
        assert failure.stderr_tail[:2] == ("first line", "last line")
    shown = str(caught.value)
    for part in ("mortal", "Mortal", str(pid), failure.host, "last line"):
        assert part in shown


def test_a_death_is_known_to_who_waits_at_once(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    mortal, where = procs.spawn("mortal", Mortal), procs.spawn("where", Where)
    pid = where.pid.call_one().get(20)
    waiting = mortal.block.call_one()
    with pytest.raises(TimeoutError):
        waiting.get(0.02)
    begun = time.monotonic()
    cluster.kill(pid)
    with pytest.raises(ReplyLost):
        waiting.get(20)
    assert time.monotonic() - begun < 2  # about 5 ms on an idle machine; this one may be busy


def test_the_other_ranks_keep_answering_and_the_mesh_is_sliced_round_the_dead(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 3})
    counters, where = procs.spawn("counter", Counter), procs.spawn("where", Where)
    cluster.kill(where.slice(gpus=1).pid.call_one().get(20))
    with pytest.raises((ReplyLost, MeshFailed)):
        counters.slice(gpus=1).add.call_one(1).get(20)
    with pytest.raises(CallError) as caught:
        counters.add.call(1).get(20)
    assert [dict(point) for point in caught.value.failures] == [{"gpus": 1}]
    alive = counters.slice(gpus=[0, 2])
    assert alive.add.call(1).get(20).to_list() == [2, 2]
    values = counters.add.options(return_exceptions=True).call(1).get(20)
    assert [type(value) is int for value in values.values()] == [True, False, True]
    late = procs.slice(gpus=[0, 2]).spawn("late", Echo)
    assert late.echo.call(1).get(20).to_list() == [1, 1]


def test_a_dead_mesh_can_be_replaced(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs(name="first")
    cluster.kill(procs.spawn("where", Where).pid.call_one().get(20))
    with pytest.raises(Exception, match="SIGKILL"):
        procs.spawn("echo", Echo).echo.call_one(1).get(20)
    again = cluster.hosts.spawn_procs(name="first")
    assert again.spawn("echo", Echo).echo.call_one(1).get(20) == 1


def test_a_call_that_meets_the_dead_never_ran_and_says_so(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs({"gpus": 2})
    echo, where = procs.spawn("echo", Echo), procs.spawn("where", Where)
    cluster.kill(where.slice(gpus=0).pid.call_one().get(20))
    first = echo.slice(gpus=0).echo.call_one(1)
    with pytest.raises((ReplyLost, DeliveryError)):
        first.get(20)
    with pytest.raises(MeshFailed, match="nothing ran"):
        echo.slice(gpus=0).echo.call_one(1).get(20)


def test_a_proc_that_is_killed_while_it_starts_ends_the_calls_that_wait(
    real_cluster: Cluster, tmp_path: object
) -> None:
    fifo = f"{tmp_path}/pid"
    os.mkfifo(fifo)
    procs = real_cluster.hosts.spawn_procs(env={"FIFO": fifo}, bootstrap=tell_pid_and_wait)
    echo = procs.spawn("echo", Echo)
    waiting = echo.echo.call_one(1)
    with open(fifo) as file:
        os.kill(int(file.read()), signal.SIGKILL)
    with pytest.raises((ReplyLost, MeshFailed), match="SIGKILL"):
        waiting.get(20)
    with pytest.raises(CallError, match="SIGKILL"):
        procs.initialized.get(20)


def tell_pid_and_wait() -> None:
    with open(os.environ["FIFO"], "w") as file:
        file.write(str(os.getpid()))
    threading.Event().wait(30)


def test_what_a_dead_proc_had_started_ends_with_it(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs(name="masters")
    master, where = procs.spawn("master", Master), procs.spawn("where", Where)
    counters = master.spawn.call_one().get(20)
    assert counters.add.call(1).get(20).to_list() == [1, 1]
    cluster.kill(where.pid.call_one().get(20))
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            counters.slice(gpus=0).add.options(timeout_s=10).call_one(1).get(20)
        except (DeliveryError, ReplyLost):
            break
    else:
        pytest.fail("the slaves outlived their master")


def freeze(pid: int) -> None:
    """Stop a process, and wait until the last of its threads has stopped."""
    os.kill(pid, signal.SIGSTOP)
    while psutil.Process(pid).status() != psutil.STATUS_STOPPED:
        continue


def test_a_stopped_process_is_not_a_dead_one(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs({"gpus": 2})
    where = procs.spawn("where", Where)
    pid = where.slice(gpus=0).os_pid.call_one().get(20)
    freeze(pid)
    try:
        frozen = where.slice(gpus=0).os_pid.call_one()
        assert where.slice(gpus=1).os_pid.call_one().get(20) != pid
        with pytest.raises(TimeoutError):
            frozen.get(0.05)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert frozen.get(20) == pid


def test_a_frozen_proc_can_be_stopped(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs()
    pid = procs.spawn("where", Where).os_pid.call_one().get(20)
    freeze(pid)
    procs.stop(0.2, now=True).get(20)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_message_that_means_another_incarnation_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = cluster.hosts.spawn_procs().spawn("counter", Counter)
    counter.add.call_one(1).get(20)
    send = type(cluster.proc).send

    def send_to_an_earlier_life(self: Proc, proc: str, agent: object, message: Message, *rest: object) -> None:
        if isinstance(message, Cast) and message.endpoint == "add":
            message = msgspec.structs.replace(message, incarnation=7)
        send(self, proc, agent, message, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(type(cluster.proc), "send", send_to_an_earlier_life)
        refused = counter.add.call_one(1)
        with pytest.raises(StaleIncarnation) as caught:
            refused.get(20)
    assert isinstance(caught.value, DeliveryError)
    assert (caught.value.meant, caught.value.current) == (7, 0)
    assert counter.read.call_one().get(20) == 1
