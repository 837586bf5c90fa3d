"""The program of an agent's process, and of the guard above it that sees to it that nothing is left."""

import os
import shutil
import signal
import socket
from collections.abc import Sequence

from danaus.config import Settings
from danaus.mesh.agent import Agent
from danaus.mesh.boots import adopt_listener, local_wires, read_boot
from danaus.protocol.boot import AgentBoot
from danaus.protocol.routing import AgentRef
from danaus.runtime.launching import ExecLauncher
from danaus.runtime.linux import adopt_orphans, children, kill_descendants, reap
from danaus.runtime.reactor import Reactor
from danaus.transport.sockets import SocketStream

PROC_MODULE = "danaus.mesh.proc_main"


def main(arguments: Sequence[str]) -> None:
    """Become guard and agent.

    The guard only waits: when the agent ends, however it ends, it removes what is left. The agent ends with the guard.
    """
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # A handler, not SIG_IGN: procs must not inherit it.
        signal.signal(number, lambda number, frame: None)
    boot, parent, listening = read_boot(arguments, AgentBoot)
    adopt_orphans()
    guard = os.getpid()
    agent = os.fork()
    if agent:
        parent.close()
        listening.close()
        os.waitpid(agent, 0)
    else:
        adopt_orphans()
        _run_agent(boot, parent, listening, guard)
    kill_descendants()
    shutil.rmtree(boot.sockets, ignore_errors=True)
    os._exit(0)


def _run_agent(boot: AgentBoot, parent: socket.socket, listening: socket.socket, guard: int) -> None:
    settings = Settings(**boot.settings)  # type: ignore[arg-type]
    reactor = Reactor("danaus-agent", may_lead=False)
    agent = Agent(
        AgentRef(boot.id, boot.address),
        boot.secret,
        settings,
        reactor,
        local_wires(settings, boot.sockets),
        ExecLauncher(reactor, PROC_MODULE),
        client=boot.client,
        client_address=boot.client_address,
        sockets=boot.sockets,
        on_end=reactor.close,
    )
    agent.listen(adopt_listener(listening, boot.address))
    agent.links.adopt(SocketStream(parent, "client"), initiator=False)
    # Of the client as well: a child that it forked may hold the socket open.
    for pid in (boot.client_pid, guard):
        _end_with(pid, agent, reactor)
    _reap_orphans(agent, reactor)
    reactor.run()


def _reap_orphans(agent: Agent, reactor: Reactor) -> None:
    """Wait for what procs leave behind: it becomes ours, and would stay a zombie."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def on_signal(_: int) -> None:
        os.read(reading, 4096)
        for pid in children():
            if pid not in agent.pids:
                reap(pid)

    reactor.register(reading, on_signal, lambda: None)


def _end_with(pid: int, agent: Agent, reactor: Reactor) -> None:
    """End the agent when the process `pid` ends."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        reactor.post(agent.end)
        return

    def on_exit(_: int) -> None:
        reactor.unregister(pidfd)
        os.close(pidfd)
        agent.end()

    reactor.register(pidfd, on_exit, lambda: None)
