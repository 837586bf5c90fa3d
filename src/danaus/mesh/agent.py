"""`Agent`: one per host. Starts procs, watches them, holds their output, says where they are and why they died.

Single-threaded, never runs user code and never unpickles user data, so nothing a user does can block it.
"""

import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from danaus.config import Settings
from danaus.errors import Error, Failure, LocalProtocolError
from danaus.protocol.boot import ProcBoot
from danaus.protocol.frame import Frame
from danaus.protocol.message import (
    Code,
    Drain,
    Leave,
    Message,
    Output,
    ProcExited,
    ProcReady,
    Raised,
    Reply,
    Resolve,
    Resolved,
    SpawnProcs,
    StopProcs,
    proc_id,
)
from danaus.protocol.routing import AgentRef
from danaus.runtime.launching import Child, Exit, Launcher
from danaus.runtime.link import Link
from danaus.runtime.links import Links
from danaus.runtime.reactor import Reactor
from danaus.runtime.regions import region_of
from danaus.transport.stream import Listener
from danaus.transport.wires import Wires

_KILL_AFTER_TERM_S = 1.0
_UNKNOWN_PROC_S = 30.0
_MAX_LINE_BYTES = 64 * 1024
_PAUSE_S = 0.01


@dataclass(slots=True)
class _Tenant:
    """One proc of this host."""

    id: str
    mesh_name: str
    rank: int
    point: Mapping[str, int]
    owner: str
    address: str
    child: Child | None = None
    planned: bool = False
    raised: Raised | None = None
    tail: deque[str] = field(default_factory=deque)
    partial_lines: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})
    when_gone: list[Callable[[], None]] = field(default_factory=list)


class Agent:
    """The state of one host and what its messages do to it. Everything runs on the driving thread."""

    def __init__(
        self,
        ref: AgentRef,
        secret: bytes,
        settings: Settings,
        reactor: Reactor,
        wires: Wires,
        launcher: Launcher,
        *,
        client: str,
        client_address: str,
        sockets: str,
        on_end: Callable[[], None],
    ) -> None:
        self.ref = ref
        self._secret = secret
        self._settings = settings
        self._reactor = reactor
        self._wires = wires
        self._launcher = launcher
        self._client = client
        self._client_address = client_address
        self._sockets = sockets
        self._on_end = on_end
        self._host = socket.gethostname()
        self._tenants: dict[str, _Tenant] = {}
        self._exited: dict[str, ProcExited] = {}
        self._seekers: dict[str, list[Link]] = {}
        self._codes: dict[str, bytes] = {}
        self._ending = False
        self.links = Links(ref.id, secret, reactor, wires, self, connect_timeout_s=settings.connect_timeout_s)

    @property
    def pids(self) -> set[int]:
        """The procs of this host."""
        return {tenant.child.pid for tenant in self._tenants.values() if tenant.child is not None}

    def listen(self, listener: Listener) -> None:
        """Accept links."""
        self.links.listen(listener)

    # ---- PeerEvents

    def peer_linked(self, link: Link) -> None:
        """Nothing to do: a peer asks for what it wants."""

    def connect_failed(self, link: Link, reason: Exception) -> None:
        """A stranger that did not prove itself, or a child that died before it did."""

    def peer_lost(self, link: Link, reason: Exception) -> None:
        """The end of the client is the end of this host."""
        if link.peer == self._client:
            if self._ending:
                self._end_if_empty()
            else:
                self.end()

    def message_arrived(self, link: Link, message: Message, frame: Frame) -> None:
        """Do what a message asks."""
        match message:
            case SpawnProcs():
                self._spawn(message, bytes(frame.payload))
            case Code():
                self._codes[message.id] = bytes(frame.payload)
            case Resolve():
                self._resolve(link, message.proc)
            case StopProcs():
                self._stop(link, message)
            case ProcReady():
                tenant = self._tenants.get(link.peer)
                if tenant is not None:
                    tenant.raised = message.raised
            case Drain():
                tenant = self._tenants.get(link.peer)
                if tenant is not None:
                    tenant.planned = True
            case Leave():
                self._leave(link, message)
            case _:
                link.close(LocalProtocolError(f"an agent does not take {type(message).__name__}"))

    # ---- starting

    def _spawn(self, message: SpawnProcs, bootstrap: bytes) -> None:
        region = region_of(message.region)
        for rank in message.ranks:
            proc = proc_id(message.mesh, rank)
            point = dict(region.extent.point(region.index_of(rank)))
            tenant = _Tenant(proc, message.name, rank, point, message.owner, "")
            tenant.tail = deque(maxlen=self._settings.stderr_tail_lines)
            self._tenants[proc] = tenant
            if self._ending:
                self._end_tenant(tenant, "the host is shutting down", None)
                continue
            try:
                self._launch(tenant, message, bootstrap)
            except OSError as error:
                self._end_tenant(tenant, f"it could not be started: {error}", None)

    def _launch(self, tenant: _Tenant, message: SpawnProcs, bootstrap: bytes) -> None:
        listener = self._wires.listen(tenant.id)
        tenant.address = listener.address
        boot = ProcBoot(
            id=tenant.id,
            name=message.name,
            secret=self._secret,
            agent=self.ref.to_text(),
            settings={name: getattr(self._settings, name) for name in self._settings.__slots__},
            sys_path=message.sys_path,
            directory=message.directory,
            address=listener.address,
            sockets=self._sockets,
            procs=message.procs,
            owner=message.owner,
            owner_agent=message.owner_agent,
            bootstrap=bootstrap,
            code=tuple(self._codes.items()) if bootstrap else (),
        )
        try:
            tenant.child = self._launcher.launch(boot, listener, message.environ, _TenantEvents(self, tenant))
        except OSError:
            listener.close()
            raise
        self.links.adopt(tenant.child.stream, initiator=True)
        for link in self._seekers.pop(tenant.id, []):
            self._resolve(link, tenant.id)

    def _resolve(self, link: Link, proc: str) -> None:
        tenant = self._tenants.get(proc)
        exited = self._exited.get(proc)
        if exited is not None:
            link.send(exited)
        elif tenant is not None:
            link.send(Resolved(proc, tenant.address))
        elif proc == self._client:
            link.send(Resolved(proc, self._client_address))
        else:
            seekers = self._seekers.setdefault(proc, [])
            seekers.append(link)
            if len(seekers) == 1:
                self._reactor.call_later(_UNKNOWN_PROC_S, partial(self._give_up_seeking, proc))

    def _give_up_seeking(self, proc: str) -> None:
        mesh, _, rank = proc.rpartition(".")
        failure = Failure(
            kind="proc_exited", mesh=mesh, rank=int(rank), point={}, cause="its host never heard of it", host=self._host
        )
        for link in self._seekers.pop(proc, []):
            link.send(ProcExited(proc, planned=False, failure=failure))

    # ---- ending

    def _stop(self, link: Link, message: StopProcs) -> None:
        for rank in message.ranks:
            proc = proc_id(message.mesh, rank)
            done = partial(link.send, Reply(message.call, rank), b"N.")
            tenant = self._tenants.get(proc)
            if tenant is None:
                done()
                continue
            tenant.when_gone.append(done)
            self._end_proc(tenant, message.timeout_s, now=message.now)

    def _end_proc(self, tenant: _Tenant, timeout_s: float, *, now: bool) -> None:
        tenant.planned = True
        link = self.links.find(tenant.id)
        if now and link is not None:
            link.send(Drain(timeout_s, now))
        elif now and tenant.child is not None:
            tenant.child.signal(signal.SIGTERM)
        patience_s = min(timeout_s, _KILL_AFTER_TERM_S) if now else timeout_s
        self._reactor.call_later(patience_s + 0.2, partial(self._kill, tenant, signal.SIGTERM))
        self._reactor.call_later(patience_s + 0.2 + _KILL_AFTER_TERM_S, partial(self._kill, tenant, signal.SIGKILL))

    def _kill(self, tenant: _Tenant, number: int) -> None:
        if tenant.id in self._tenants and tenant.child is not None:
            tenant.child.signal(number)

    def _leave(self, link: Link, message: Leave) -> None:
        self._ending = True

        def check() -> None:
            if not self._tenants:
                link.send(message)
                link.close_after_flush(Error("the client left"))

        for tenant in list(self._tenants.values()):
            tenant.when_gone.append(check)
            self._end_proc(tenant, message.timeout_s, now=True)
        check()

    def end(self) -> None:
        """The client is gone: end every proc, first asked, then killed; then end."""
        self._ending = True
        for tenant in list(self._tenants.values()):
            tenant.planned = True
            if tenant.child is not None:
                tenant.child.signal(signal.SIGTERM)
            self._reactor.call_later(_KILL_AFTER_TERM_S, partial(self._kill, tenant, signal.SIGKILL))
            tenant.when_gone.append(self._end_if_empty)
        self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._ending and not self._tenants:
            self.links.close(Error("the agent ended"))
            self._on_end()

    # ---- what children do

    def child_wrote(self, tenant: _Tenant, stream: int, data: bytes) -> None:
        """Pass whole lines on to the client, and keep the tail of stderr."""
        pending = tenant.partial_lines[stream]
        pending += data
        cut = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
        if not data or len(pending) > _MAX_LINE_BYTES:
            cut = len(pending)
        if not cut:
            return
        lines = bytes(pending[:cut])
        del pending[:cut]
        if stream == 2:
            tenant.tail.extend(lines.decode(errors="replace").splitlines())
        link = self.links.find(self._client)
        if link is None:
            return
        link.send(Output(tenant.id, stream), lines)
        if link.is_congested and tenant.child is not None:
            tenant.child.pause_output(True)
            self._reactor.call_later(_PAUSE_S, partial(self._resume, tenant, link))

    def _resume(self, tenant: _Tenant, link: Link) -> None:
        if tenant.child is None or tenant.id not in self._tenants:
            return
        if link.is_congested:
            self._reactor.call_later(_PAUSE_S, partial(self._resume, tenant, link))
        else:
            tenant.child.pause_output(False)

    def child_exited(self, tenant: _Tenant, status: Exit) -> None:
        """Tell everybody, and end what the dead proc had started."""
        link = self.links.find(tenant.id)
        if link is not None:
            link.read_to_end()  # why it ended may be its last words
        if status.signal is not None:
            cause = f"the proc was killed by {_name_of_signal(status.signal)}"
        elif tenant.raised is not None:
            cause = f"the bootstrap raised {tenant.raised.type_name}: {tenant.raised.text}"
        else:
            cause = f"the proc exited with code {status.code}"
        self._end_tenant(tenant, cause, status)
        for other in list(self._tenants.values()):
            if other.owner.partition("/")[0] == tenant.id and not other.planned:
                self._end_proc(other, 1.0, now=True)

    def _end_tenant(self, tenant: _Tenant, cause: str, status: Exit | None) -> None:
        self._tenants.pop(tenant.id, None)
        if tenant.address.startswith("unix:"):
            _unlink(tenant.address.removeprefix("unix:"))
        number = None if status is None else status.signal
        failure = Failure(
            kind="proc_exited",
            mesh=tenant.mesh_name,
            rank=tenant.rank,
            point=tenant.point,
            cause=cause,
            host=self._host,
            pid=0 if tenant.child is None else tenant.child.pid,
            exit_code=None if status is None else status.code,
            signal=None if number is None else _name_of_signal(number),
            stderr_tail=tuple(tenant.tail),
            traceback="" if tenant.raised is None else tenant.raised.traceback,
        )
        exited = ProcExited(tenant.id, tenant.planned, failure)
        self._exited[tenant.id] = exited
        for link in self.links:
            link.send(exited)
        for link in self._seekers.pop(tenant.id, []):
            link.send(exited)
        for gone in tenant.when_gone:
            gone()


@dataclass(slots=True)
class _TenantEvents:
    agent: Agent
    tenant: _Tenant

    def child_wrote(self, stream: int, data: bytes) -> None:
        self.agent.child_wrote(self.tenant, stream, data)

    def child_exited(self, status: Exit) -> None:
        self.agent.child_exited(self.tenant, status)


def _name_of_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time one


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
