"""Semantics 23: a child that user code forks holds none of our connections and cannot speak for its parent."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from behaviour.actors import Where
from behaviour.conftest import Cluster
from danaus import Actor, endpoint


def sockets_of(pid: int | str) -> set[str]:
    """The sockets and event descriptors that a process holds."""
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if target.startswith(("socket:", "anon_inode:[event")):
            found.add(target)
    return found


def wait_until_gone(pid: int) -> None:
    """If it stays, the timeout of the test ends this."""
    while os.path.exists(f"/proc/{pid}"):
        threading.Event().wait(0.002)


def fork_and_look() -> tuple[set[str], str]:
    """What a forked child holds, and what it is told when it tries to speak for its parent."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = "\n".join(sorted(sockets_of("self")))
            try:
                from danaus import this_host

                this_host().spawn_procs()
                text += "\nit spawned"
            except Exception as error:
                text += f"\n{error}"
            os.write(writing, text.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as file:
        *held, said = file.read().split("\n")
    os.waitpid(child, 0)
    return {each for each in held if each}, said


class Forking(Actor):
    """Forks."""

    @endpoint
    def fork_and_look(self) -> tuple[set[str], str, int]:
        held, said = fork_and_look()
        return held, said, len(sockets_of("self"))

    @endpoint
    def leave_child(self) -> int:
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        return child

    @endpoint
    def wait_for_child(self, child: int) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_child_forked_by_an_actor_holds_none_of_our_connections(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs({"gpus": 2})
    forking = procs.spawn("forking", Forking)
    held, said, own = forking.slice(gpus=0).fork_and_look.call_one().get(20)
    assert own > 0
    assert held == set()
    assert "forked" in said
    assert forking.slice(gpus=0).fork_and_look.call_one().get(20)[2] == own  # the parent goes on


def test_a_child_forked_by_the_client_holds_none_of_our_connections(real_cluster: Cluster) -> None:
    where = real_cluster.hosts.spawn_procs().spawn("where", Where)
    pid = where.os_pid.call_one().get(20)
    assert sockets_of("self")
    held, said = fork_and_look()
    assert held == set()
    assert "forked" in said
    assert where.os_pid.call_one().get(20) == pid


def test_the_death_of_a_proc_is_known_although_a_forked_child_lives_on(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs({"gpus": 2})
    forking, where = procs.spawn("forking", Forking), procs.spawn("where", Where)
    child = forking.slice(gpus=0).leave_child.call_one().get(20)
    pid = where.slice(gpus=0).os_pid.call_one().get(20)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Exception, match="SIGKILL"):
        where.slice(gpus=0).os_pid.call_one().get(20)
    wait_until_gone(child)  # it was in the session of the proc
    assert where.slice(gpus=1).os_pid.call_one().get(20) > 0


def test_the_end_of_the_client_is_noticed_although_a_forked_child_lives_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal, sys
            from danaus import Actor, endpoint, this_host

            class Worker(Actor):
                @endpoint
                def pid(self):
                    return os.getpid()

            worker = this_host().spawn_procs().spawn("worker", Worker)
            pid = worker.pid.call_one().get(30)
            child = os.fork()
            if child == 0:
                sys.stdout.close()
                signal.pause()
            print(pid, child, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
            """
        )
    )
    process = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid, child = map(int, process.stdout.readline().split())
    process.wait(20)
    process.stdout.close()
    try:
        wait_until_gone(pid)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_forked_by_an_actor_ends_by_sigterm_as_any_process(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs()
    forking, where = procs.spawn("forking", Forking), procs.spawn("where", Where)
    child = forking.leave_child.call_one().get(20)
    os.kill(child, signal.SIGTERM)
    assert forking.wait_for_child.call_one(child).get(20) == -signal.SIGTERM
    assert where.os_pid.call_one().get(20) > 0
