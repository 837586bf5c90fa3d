"""`Client`: the user's process as part of the mesh: starts the agent of its own machine, and sees to the end."""

import atexit
import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial

from danaus.config import Settings, runtime_parent
from danaus.errors import Error, Failure, MeshStopped
from danaus.mesh.boots import local_wires
from danaus.mesh.refs import new_id
from danaus.protocol.boot import AgentBoot, encode_boot
from danaus.protocol.frame import Frame
from danaus.protocol.message import Leave, Message, Output, proc_id
from danaus.protocol.routing import AgentRef
from danaus.runtime.context import process_slot, running
from danaus.runtime.launching import start_python
from danaus.runtime.link import Link
from danaus.runtime.proc import Identity, Proc
from danaus.runtime.reactor import Reactor
from danaus.transport.sockets import SocketListener

_LEAVE_SLACK_S = 5.0


class Client:
    """A proc that is the root of the ownership tree, and the agent of its machine."""

    def __init__(self, settings: Settings | None = None) -> None:
        settings = settings or Settings.from_environ()
        self._directory = tempfile.mkdtemp(prefix="danaus-", dir=runtime_parent())
        wires = local_wires(settings, self._directory)
        listener, agent_listener = wires.listen("client"), wires.listen("agent")
        assert isinstance(agent_listener, SocketListener)
        secret = secrets.token_bytes(32)
        agent = AgentRef(new_id("h"), agent_listener.address)
        reactor = Reactor("danaus-io")
        reactor.shield.install()
        me = proc_id(new_id("c"), 0)
        self.proc = Proc(Identity(me, "client", secret, agent), settings, reactor, wires, is_client=True)
        self.proc.other_message = self._take
        self.proc.agent_lost = self._on_agent_lost
        self.proc.root.end_process = self._end_process
        self.proc.listen(listener)
        boot = AgentBoot(
            id=agent.id,
            secret=secret,
            settings={name: getattr(settings, name) for name in settings.__slots__},
            address=agent.address,
            sockets=self._directory,
            client=me,
            client_address=listener.address,
            client_pid=os.getpid(),
        )
        self._guard, stream = start_python(
            "danaus.mesh.agent_main",
            encode_boot(boot),
            agent_listener,
            {},
            pipes=False,
        )
        self._agent_link = self.proc.links.adopt(stream, initiator=True)
        self.proc.peers.opening(agent, self._agent_link)
        self._left = threading.Event()
        self._closing = False
        reactor.start()

    def close(self) -> None:
        """Stop all that was started, wait until it is gone, and give everything back. Once; later calls do nothing."""
        if self._closing or self.proc.reactor.disabled:
            return
        self._closing = True
        proc = self.proc
        timeout_s = proc.settings.stop_timeout_s
        stop_children(proc, timeout_s)
        self._agent_link.send(Leave(timeout_s))
        self._left.wait(timeout_s + _LEAVE_SLACK_S)
        self._guard.wait()
        proc.root.close()
        proc.close(MeshStopped("the client was shut down"))
        proc.reactor.close()
        proc.reactor.shield.uninstall()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _take(self, link: Link, message: Message, frame: Frame) -> None:
        match message:
            case Output():
                stream = "stdout" if message.stream == 1 else "stderr"
                self.proc.callbacks.run_soon(partial(_write, stream, bytes(frame.payload)))
            case Leave():
                self._left.set()
            case _:
                link.close(Error(f"a client does not take {type(message).__name__}"))

    def _on_agent_lost(self, reason: Exception) -> None:
        self._left.set()

    def _end_process(self, code: int) -> None:
        if self._closing or self.proc.reactor.shield.exit_main(code):
            return
        # Nothing can be raised in the main thread: interrupts are somebody else's. The agent sees to all that is left.
        exit_now(code)


def exit_now(code: int) -> None:
    """End this process without any further clean-up."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue  # closed, or never there
    os._exit(code)


def stop_children(proc: Proc, timeout_s: float) -> None:
    """Stop the actors of the own process, and what no actor owns is ended by the agent."""
    done = [threading.Event() for _ in proc.actors.all()]
    proc.actors.close()
    for cell, event in zip(proc.actors.all(), done, strict=False):
        cell.stop(timeout_s, now=True, done=event.set)
    for event in done:
        event.wait(timeout_s)


def _write(stream: str, data: bytes) -> None:
    file = getattr(sys, stream)
    if file is None:
        return
    binary = getattr(file, "buffer", None)
    if binary is None:
        file.write(data.decode(errors="replace"))
    else:
        file.flush()
        binary.write(data)
    file.flush()


def _start() -> object:
    client = Client()
    atexit.register(_exit, client)
    return client


def _exit(client: Client) -> None:
    shield = client.proc.reactor.shield
    shield.abandon_exit()
    client.close()
    if client.proc.root.exit_code is not None and not shield.exit_raised:
        # A failure that nobody received was found only now: the interpreter's own exit code is settled already.
        exit_now(client.proc.root.exit_code)


def current_proc() -> Proc:
    """The runtime of whoever runs: the actor's, the proc's, or the client's, which starts on first use."""
    now = running.get()
    found = process_slot.get(_start) if now is None else now.runtime
    if isinstance(found, Client):
        found = found.proc
    assert isinstance(found, Proc)
    if found.reactor.disabled:
        raise Error("this process was forked from one that uses Danaus; use it in the parent, or exec a new program")
    return found


def shutdown() -> None:
    """Stop everything this process started, and wait until it is gone. The next use starts afresh."""
    client = process_slot.swap(None)
    if isinstance(client, Client):
        atexit.unregister(_exit)
        client.close()
        if client.proc.root.exit_code is not None:
            raise SystemExit(client.proc.root.exit_code)
    elif client is not None:
        process_slot.swap(client)


def on_unhandled_failure(hook: Callable[[Failure], object] | None) -> None:
    """Have `hook(failure)` called for each failure that no owner handled and no caller received.

    It replaces the default, which prints one block and ends the program with exit code 1. None brings that back.
    """
    root = current_proc().root
    root.hook = hook or root.print_and_exit
