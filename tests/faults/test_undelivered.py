"""A call that never left its sender says so; news that come twice count once."""

from collections.abc import Callable
from queue import SimpleQueue

import pytest

from behaviour.actors import Echo
from danaus import CallError, Failure, MeshFailed, MeshStopped, Settings
from danaus.protocol.message import Message, ProcExited, Resolved
from danaus.testing.faults import FaultPlan
from danaus.testing.hosts import InMemoryHosts


def is_a(kind: type[Message]) -> Callable[[Message], bool]:
    return lambda message: isinstance(message, kind)


def test_a_call_to_a_proc_that_dies_before_there_is_a_link_was_never_delivered() -> None:
    plan = FaultPlan[Message]().drop(matching=is_a(Resolved)).kill("workers.0", after_frames=1)
    with InMemoryHosts(1, faults=plan) as memory:
        memory.client.root.hook = lambda failure: None
        echo = memory.hosts.spawn_procs(name="workers").spawn("echo", Echo)
        call, other = echo.echo.call_one(1), echo.echo.options(return_exceptions=True).call(2)
        with pytest.raises(MeshFailed, match="SIGKILL") as caught:
            call.get(20)
        assert (caught.value.failure.mesh, caught.value.failure.endpoint) == ("echo", "echo.echo")
        assert [type(error) for error in other.get(20).to_list()] == [MeshFailed]
        with pytest.raises(CallError, match="nothing ran"):
            echo.initialized.get(20)


def test_a_call_to_a_proc_that_is_stopped_before_there_is_a_link_was_never_delivered() -> None:
    plan = FaultPlan[Message]().drop(matching=is_a(Resolved))
    with InMemoryHosts(1, faults=plan) as memory:
        procs = memory.hosts.spawn_procs(name="workers")
        call = procs.spawn("echo", Echo).echo.call_one(1)
        procs.stop(now=True).get(20)
        with pytest.raises(MeshStopped):
            call.get(20)


@pytest.mark.parametrize("kind", [Resolved, ProcExited])
def test_news_of_a_proc_that_come_twice_count_once(kind: type[Message]) -> None:
    plan = FaultPlan[Message]().double(matching=is_a(kind))
    failures: SimpleQueue[Failure] = SimpleQueue()
    with InMemoryHosts(1, settings=Settings(unhandled_grace_s=0.05), faults=plan) as memory:
        memory.client.root.hook = failures.put
        echo = memory.hosts.spawn_procs(name="workers").spawn("echo", Echo)
        assert echo.echo.call_one(1).get(20) == 1
        memory.kill("workers.0")
        assert "SIGKILL" in failures.get(timeout=20).cause
        with pytest.raises(MeshFailed):
            echo.echo.call_one(2).get(20)
    assert failures.empty()
