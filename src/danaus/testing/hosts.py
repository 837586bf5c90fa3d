"""`InMemoryHosts`: hosts, agents and procs inside one process, with the same public API as real ones.

For tests that want many hosts, quick starts, or faults at an exact moment. Procs are not processes here: they share
the interpreter and its environment, `env=` is ignored, and one that is killed goes on with the user code it is in.
"""

import itertools
import secrets
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Self

from danaus.config import Settings
from danaus.errors import MeshStopped
from danaus.mesh.agent import Agent
from danaus.mesh.client import stop_children
from danaus.mesh.host_mesh import HostMesh
from danaus.mesh.refs import HostsRef, new_id
from danaus.mesh.tenancy import Tenancy
from danaus.protocol.boot import ProcBoot
from danaus.protocol.frame import Frame
from danaus.protocol.message import Message, Output, proc_id, split_proc_id
from danaus.protocol.routing import AgentRef
from danaus.runtime.clock import Clock
from danaus.runtime.context import process_slot
from danaus.runtime.launching import Child, ChildEvents, Exit
from danaus.runtime.link import Link
from danaus.runtime.proc import Identity, Proc
from danaus.runtime.reactor import Reactor
from danaus.testing.carrier import Carrier
from danaus.testing.faults import FaultPlan
from danaus.topology import Extent
from danaus.transport.inproc import InprocListener, InprocNetwork, InprocStream
from danaus.transport.stream import Listener, Stream
from danaus.transport.wires import Wires

_END_WITHIN_S = 10.0


class InMemoryHosts:
    """A context manager: inside it, `this_host()` and everything started from it live in this process.

    Attributes:
        hosts: all hosts, with the axis `hosts`.
    """

    def __init__(
        self,
        num_hosts: int = 1,
        *,
        settings: Settings | None = None,
        clock: Clock | None = None,
        faults: FaultPlan[Message] | None = None,
    ) -> None:
        """Prepare.

        Args:
            num_hosts: how many.
            settings: of the client and all procs.
            clock: a `VirtualClock`, to let time pass by hand.
            faults: what goes wrong on each link, and when procs die or freeze. Procs are called `<mesh name>.<rank>`.
        """
        self._num_hosts = num_hosts
        self._settings = settings or Settings.from_environ()
        self._reactor = Reactor("danaus-in-memory", clock)
        self._carrier = Carrier(faults or FaultPlan(), self._reactor, self.kill)
        self._network = InprocNetwork(self._carrier.carry)
        self._ended = [threading.Event() for _ in range(num_hosts)]
        self._launchers: list[_InMemoryLauncher] = []
        self._agents: list[Agent] = []
        self._before: object | None = None

    def __enter__(self) -> Self:
        secret = secrets.token_bytes(32)
        client = proc_id(new_id("c"), 0)
        client_wires = self._wires_of("client")
        listener = client_wires.listen(client)
        for index, ended in enumerate(self._ended):
            wires = self._wires_of(f"agent.{index}")
            agent_listener = wires.listen(new_id("h"))
            launcher = _InMemoryLauncher(self._network, f"agent.{index}", self._wires_of, self._reactor)
            agent = Agent(
                AgentRef(new_id("h"), agent_listener.address),
                secret,
                self._settings,
                self._reactor,
                wires,
                launcher,
                client=client,
                client_address=listener.address,
                sockets="",
                on_end=ended.set,
            )
            agent.listen(agent_listener)
            self._agents.append(agent)
            self._launchers.append(launcher)
        own = self._agents[0].ref
        self.client = Proc(
            Identity(client, "client", secret, own), self._settings, self._reactor, client_wires, is_client=True
        )
        self.client.other_message = self._take
        self.client.listen(listener)
        self._reactor.start()
        self.hosts = HostMesh(
            HostsRef("in_memory", tuple(agent.ref.to_text() for agent in self._agents)),
            Extent({"hosts": self._num_hosts}).region,
        )
        self._before = process_slot.swap(self.client)
        return self

    def __exit__(self, *exc: object) -> None:
        process_slot.swap(self._before)
        stop_children(self.client, 1.0)
        for agent in self._agents:
            self._reactor.post(agent.end)
        for ended in self._ended:
            ended.wait(_END_WITHIN_S)
        self.client.root.close()
        self.client.close(MeshStopped("the in-memory hosts were closed"))
        self._reactor.close()

    def pids(self) -> Sequence[int]:
        """The made-up pids of the living procs."""
        return [pid for launcher in self._launchers for pid in launcher.children]

    def kill(self, proc: int | str) -> None:
        """Let a proc, by pid or `<mesh name>.<rank>`, die as by SIGKILL: at once, with all its links, no clean-up."""
        for launcher in self._launchers:
            for child in list(launcher.children.values()):
                if proc in (child.pid, child.name):
                    self._reactor.post(partial(child.signal, signal.SIGKILL))

    def freeze(self, proc: str) -> None:
        """Let nothing reach or leave the proc `<mesh name>.<rank>`, as while it is stopped by SIGSTOP."""
        self._carrier.freeze(proc)

    def thaw(self, proc: str) -> None:
        """Let a frozen proc go on; what was held arrives now."""
        self._carrier.thaw(proc)

    def _wires_of(self, owner: str) -> Wires:
        return Wires({"inproc": self._network.transport_of(owner)}, "inproc")

    def _take(self, link: Link, message: Message, frame: Frame) -> None:
        if isinstance(message, Output):
            sys.stdout.write(bytes(frame.payload).decode())


_pids = itertools.count(1 << 22)
"""Larger than any real pid."""


class _InMemoryLauncher:
    def __init__(self, network: InprocNetwork, agent: str, wires_of: Callable[[str], Wires], reactor: Reactor) -> None:
        self.children: dict[int, _InMemoryChild] = {}
        self._network = network
        self._agent = agent
        self._wires_of = wires_of
        self._reactor = reactor

    def launch(self, boot: ProcBoot, listener: Listener, environ: Mapping[str, str], events: ChildEvents) -> Child:
        """Make a proc in this process."""
        assert isinstance(listener, InprocListener)
        name = f"{boot.name}.{split_proc_id(boot.id)[1]}"
        listener.owner = name
        near, far = self._network.pair(listener.address, self._agent, name)
        child = _InMemoryChild(next(_pids), name, near, events, self.children)
        self.children[child.pid] = child
        child.start(boot, listener, far, self._wires_of(name), self._reactor)
        return child


class _InMemoryChild:
    def __init__(
        self, pid: int, name: str, stream: Stream, events: ChildEvents, siblings: dict[int, "_InMemoryChild"]
    ) -> None:
        self.pid = pid
        self.name = name
        self.stream = stream
        self._events = events
        self._siblings = siblings
        self._over = False

    def start(self, boot: ProcBoot, listener: Listener, far: InprocStream, wires: Wires, reactor: Reactor) -> None:
        """Begin to live; the bootstrap runs on a thread of its own."""
        identity = Identity(boot.id, boot.name, boot.secret, AgentRef.from_text(boot.agent), boot.procs)
        settings = Settings(**boot.settings)  # type: ignore[arg-type]
        self._proc = Proc(identity, settings, reactor, wires, is_client=False, pid=self.pid)
        self._tenancy = Tenancy(self._proc, boot, lambda code: reactor.post(partial(self._end, Exit(code, None))))
        self._tenancy.serve(listener, far)
        if boot.bootstrap:
            threading.Thread(target=self._tenancy.bootstrap, name=f"danaus-main-{boot.name}", daemon=True).start()
        else:
            self._tenancy.bootstrap()

    def signal(self, number: int) -> None:
        """TERM ends it in order, KILL at once; others do nothing."""
        if number == signal.SIGTERM:
            self._tenancy.end(128 + number)
        elif number == signal.SIGKILL:
            self._end(Exit(None, signal.SIGKILL))

    def pause_output(self, paused: bool) -> None:
        """It has no output of its own."""

    def _end(self, status: Exit) -> None:
        if self._over:
            return
        self._over = True
        self._proc.links.close(MeshStopped("the proc ended"))  # first: the dead do not answer
        for cell in self._proc.actors.all():
            cell.crash()
        self._proc.close(MeshStopped("the proc ended"))
        self._siblings.pop(self.pid, None)
        self._events.child_exited(status)
