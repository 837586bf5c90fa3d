"""Semantics 15: spawning returns at once, and what goes wrong there reaches the owner."""

import os
import threading
import time

import pytest

from behaviour.actors import Echo
from behaviour.conftest import Cluster
from danaus import Actor, Failure, MeshFailed, ReplyLost, endpoint

TRANSPORTS = ("in-memory", "unix")


class Builder(Actor):
    """Takes its time, or breaks."""

    def __init__(self, trouble: str = "") -> None:
        if trouble == "raise":
            raise LookupError("no such file")
        if trouble == "exit":
            raise SystemExit(3)

    @endpoint
    def ready(self) -> bool:
        return True


class Environment(Actor):
    @endpoint
    def read(self, name: str) -> str | None:
        return os.environ.get(name)

    @endpoint
    def directory(self) -> str:
        return os.getcwd()


class Parent(Actor):
    """Spawns what breaks."""

    def __init__(self) -> None:
        self.told: list[Failure] = []

    @endpoint
    def spawn(self, procs: object) -> None:
        self.built = procs.spawn("built", Builder, "raise")  # type: ignore[attr-defined]
        self.echo = procs.spawn("echo", Echo)  # type: ignore[attr-defined]

    @endpoint
    def wait_told(self) -> list[Failure]:
        while not self.told:
            self.echo.echo.call(1).get(20)
        return self.told

    def __supervise__(self, failure: Failure) -> bool:
        self.told.append(failure)
        return True


def mark() -> None:
    os.environ["MARK"] = "set by the bootstrap"


def fail() -> None:
    raise RuntimeError("no driver")


def leave() -> None:
    os.write(2, b"last words\n")
    os._exit(7)


def wait_for_failures(cluster: Cluster, count: int) -> list[Failure]:
    """What the root hook was called with, once there are so many."""
    heard = threading.Event()
    seen = cluster.unhandled

    def hook(failure: Failure) -> None:
        seen.append(failure)
        if len(seen) >= count:
            heard.set()

    cluster.proc.root.hook = hook
    if len(seen) < count:
        assert heard.wait(20), seen
    return seen


def test_spawning_returns_at_once_and_the_first_use_waits(cluster: Cluster) -> None:
    begun = time.monotonic()
    procs = cluster.hosts.spawn_procs({"gpus": 2}, bootstrap=take_a_moment)
    builder = procs.spawn("builder", Builder)
    first = builder.ready.call()
    assert not procs.initialized.done()
    assert not builder.initialized.done()
    assert first.get(20).to_list() == [True, True]
    assert time.monotonic() - begun >= 0.1
    assert builder.initialized.done()
    procs.initialized.get(20)


def take_a_moment() -> None:
    threading.Event().wait(0.1)


def test_a_constructor_that_raises_reaches_the_owner_even_if_nobody_calls(cluster: Cluster) -> None:
    parent = cluster.hosts.spawn_procs(name="parents").spawn("parent", Parent)
    parent.spawn.call_one(cluster.hosts.spawn_procs({"gpus": 2})).get(20)
    while len(told := parent.wait_told.call_one().get(20)) < 2:
        continue
    assert sorted(failure.rank for failure in told) == [0, 1]
    for failure in told:
        assert failure.kind == "constructor_raised"
        assert failure.mesh == "built"
        assert failure.class_name == "Builder"
        assert "LookupError: no such file" in failure.cause
        assert 'raise LookupError("no such file")' in failure.traceback
    assert cluster.unhandled == []


def test_a_constructor_that_raises_runs_the_root_hook_if_the_client_owns_it_and_nobody_looks(cluster: Cluster) -> None:
    cluster.hosts.spawn_procs().spawn("builder", Builder, "raise")
    (failure,) = wait_for_failures(cluster, 1)
    assert failure.kind == "constructor_raised"


@pytest.mark.parametrize("trouble", ["raise", "exit"])
def test_calls_and_initialized_raise_what_became_of_the_constructor(cluster: Cluster, trouble: str) -> None:
    builder = cluster.hosts.spawn_procs().spawn("builder", Builder, trouble)
    with pytest.raises(MeshFailed, match="the constructor raised") as caught:
        builder.ready.call_one().get(20)
    assert caught.value.failure.traceback
    with pytest.raises(MeshFailed):
        builder.ready.call_one().get(20)
    with pytest.raises(Exception, match="the constructor raised"):
        builder.initialized.get(20)
    assert cluster.unhandled == []


def test_the_procs_of_a_broken_actor_live_on(cluster: Cluster) -> None:
    procs = cluster.hosts.spawn_procs()
    with pytest.raises(MeshFailed):
        procs.spawn("builder", Builder, "raise").ready.call_one().get(20)
    assert procs.spawn("builder", Builder).ready.call_one().get(20)


def test_env_is_set_before_the_interpreter_starts(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs(env={"COLOUR": "blue", "PYTHONHASHSEED": "0"})
    environment = procs.spawn("environment", Environment)
    assert environment.read.call_one("COLOUR").get(20) == "blue"
    assert environment.read.call_one("PATH").get(20) == os.environ["PATH"]
    assert environment.directory.call_one().get(20) == os.getcwd()
    assert "COLOUR" not in os.environ


def test_the_bootstrap_runs_before_any_actor_is_made(real_cluster: Cluster) -> None:
    environment = real_cluster.hosts.spawn_procs(bootstrap=mark).spawn("environment", Environment)
    assert environment.read.call_one("MARK").get(20) == "set by the bootstrap"


def test_a_bootstrap_that_raises_ends_the_proc_and_says_why(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs(bootstrap=fail)
    echo = procs.spawn("echo", Echo)
    with pytest.raises((MeshFailed, ReplyLost), match="the bootstrap raised RuntimeError: no driver") as caught:
        echo.echo.call_one(1).get(20)
    assert "in fail" in caught.value.failure.traceback
    with pytest.raises(Exception, match="no driver"):
        procs.initialized.get(20)


def test_a_proc_that_ends_while_it_starts_is_a_failure_with_its_exit_code_and_last_words(real_cluster: Cluster) -> None:
    echo = real_cluster.hosts.spawn_procs(bootstrap=leave).spawn("echo", Echo)
    with pytest.raises((MeshFailed, ReplyLost), match="exited with code 7") as caught:
        echo.echo.call_one(1).get(20)
    assert caught.value.failure.exit_code == 7
    assert caught.value.failure.stderr_tail == ("last words",)


def test_a_python_that_cannot_start_is_a_failure(real_cluster: Cluster) -> None:
    procs = real_cluster.hosts.spawn_procs(env={"PYTHONHOME": "/nowhere"})
    with pytest.raises(Exception, match="exited with code 1") as caught:
        procs.initialized.get(20)
    assert "encodings" in str(caught.value)
    assert len(wait_for_failures(real_cluster, 0)) == 0
