"""The program of an agent's process, and of the guard above it that sees to it that nothing is left."""

import os
import signal
from collections.abc import Sequence

from danaus.config import Settings
from danaus.mesh.agent import Agent
from danaus.mesh.boots import adopt_listener, local_wires, read_boot
from danaus.protocol.boot import AgentBoot
from danaus.runtime.launching import ExecLauncher
from danaus.runtime.linux import adopt_orphans, die_with_parent, kill_descendants
from danaus.runtime.peers import AgentRef
from danaus.runtime.reactor import Reactor
from danaus.transport.sockets import SocketStream

PROC_MODULE = "danaus.mesh.proc_main"


def main(arguments: Sequence[str]) -> None:
    """Become guard and agent. The guard only waits: when the agent ends, however it ends, it kills what is left."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        # A handler, not SIG_IGN: procs must not inherit it.
        signal.signal(number, lambda number, frame: None)
    adopt_orphans()
    agent = os.fork()
    if agent:
        for fd in arguments:
            os.close(int(fd))
        os.waitpid(agent, 0)
        kill_descendants()
        os._exit(0)
    die_with_parent()
    _run_agent(arguments)


def _run_agent(arguments: Sequence[str]) -> None:
    adopt_orphans()
    boot, parent, listening = read_boot(arguments, AgentBoot)
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
    _watch(reactor, boot.client_pid, agent)
    reactor.run()
    kill_descendants()
    os._exit(0)


def _watch(reactor: Reactor, client_pid: int, agent: Agent) -> None:
    """A forked child of the client may hold the socket open; the end of the client itself is what counts."""
    try:
        pidfd = os.pidfd_open(client_pid)
    except ProcessLookupError:
        reactor.post(agent.end)
        return

    def on_exit(_: int) -> None:
        reactor.unregister(pidfd)
        os.close(pidfd)
        agent.end()

    reactor.register(pidfd, on_exit, lambda: None)
