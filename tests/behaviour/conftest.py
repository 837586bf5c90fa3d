"""One suite, every transport: `cluster` is a client with one host, in memory or real, over unix sockets or TCP."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from danaus import Failure, HostMesh, Settings, this_host
from danaus.mesh.client import Client
from danaus.runtime.context import process_slot
from danaus.runtime.proc import Proc
from danaus.testing.hosts import InMemoryHosts

GRACE_S = 0.1
"""Shorter than by default, since some tests wait for its end."""

TRANSPORTS = ("in-memory", "unix", "tcp")
"""What a module's tests run over, unless it has its own `TRANSPORTS`: fewer where no wire can matter."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "wire" in metafunc.fixturenames:
        over = getattr(metafunc.module, "TRANSPORTS", TRANSPORTS)
        metafunc.parametrize("wire", over, indirect=True, scope="session")


@dataclass
class Cluster:
    """What a behaviour test starts from."""

    wire: str
    proc: Proc
    hosts: HostMesh
    memory: InMemoryHosts | None
    unhandled: list[Failure] = field(default_factory=list)
    """What the root hook was called with."""

    @property
    def is_real(self) -> bool:
        """Whether procs are processes of their own."""
        return self.memory is None

    def kill(self, pid: int) -> None:
        """Let the proc with this pid (from `Where.pid`) die as by SIGKILL."""
        if self.memory is None:
            os.kill(pid, signal.SIGKILL)
        else:
            self.memory.kill(pid)


@pytest.fixture(scope="session")
def wire(request: pytest.FixtureRequest) -> Iterator[tuple[str, Client | None]]:
    """The transport, and for real ones a client whose agent lives as long as the tests of this transport."""
    if request.param == "in-memory":
        yield request.param, None
        return
    client = Client(Settings(transport=request.param, unhandled_grace_s=GRACE_S))
    before = process_slot.swap(client)
    # The agent and the thread for callbacks are up: no test counts them as its own.
    this_host().spawn_procs(name="first").stop().get(30)
    client.proc.callbacks.run_soon(lambda: None)
    process_slot.swap(before)
    yield request.param, client
    client.close()


@pytest.fixture
def cluster(wire: tuple[str, Client | None]) -> Iterator[Cluster]:
    """A client with one host; what the test started is stopped after it."""
    name, client = wire
    if client is None:
        with InMemoryHosts(1, settings=Settings(unhandled_grace_s=GRACE_S)) as memory:
            made = Cluster(name, memory.client, memory.hosts.slice(hosts=0), memory)
            memory.client.root.hook = made.unhandled.append
            yield made
        return
    before = process_slot.swap(client)
    made = Cluster(name, client.proc, this_host(), None)
    client.proc.root.hook = made.unhandled.append
    try:
        yield made
    finally:
        stops = [stop(2.0, True) for stop in list(client.proc.children.values())]
        for stopped in stops:
            stopped.exception(5.0)
        # What this test left unhandled is not the next one's.
        client.proc.root.close()
        told = threading.Event()
        client.proc.callbacks.run_soon(told.set)
        told.wait(5.0)
        process_slot.swap(before)


@pytest.fixture
def real_cluster(cluster: Cluster) -> Cluster:
    """Only where procs are processes of their own."""
    if not cluster.is_real:
        pytest.skip("needs procs that are processes")
    return cluster
