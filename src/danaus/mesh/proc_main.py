"""The program of a proc's process."""

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

from danaus.config import Settings
from danaus.mesh.boots import adopt_listener, local_wires, read_boot
from danaus.mesh.tenancy import Tenancy
from danaus.protocol.boot import ProcBoot
from danaus.protocol.routing import AgentRef
from danaus.runtime.context import process_slot
from danaus.runtime.linux import die_with_parent
from danaus.runtime.proc import Identity, Proc
from danaus.runtime.reactor import Reactor
from danaus.transport.sockets import SocketStream


def main(arguments: Sequence[str]) -> None:
    """Run until told to end; exits with the code that says how."""
    die_with_parent()
    boot, parent, listening = read_boot(arguments, ProcBoot)
    settings = Settings(**boot.settings)  # type: ignore[arg-type]
    sys.path[:] = boot.sys_path
    os.chdir(boot.directory)
    sys.setswitchinterval(settings.switch_interval_s)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)  # a pipe, but somebody watches at its end
    reactor = Reactor(f"danaus-io-{boot.name}")
    identity = Identity(boot.id, boot.name, boot.secret, AgentRef.from_text(boot.agent), boot.procs)
    proc = Proc(identity, settings, reactor, local_wires(settings, boot.sockets), is_client=False)
    process_slot.swap(proc)
    ended = threading.Event()
    codes: list[int] = []

    def on_end(code: int) -> None:
        codes.append(code)
        ended.set()

    tenancy = Tenancy(proc, boot, on_end)
    _on_sigterm(lambda: tenancy.end(128 + signal.SIGTERM))
    tenancy.serve(adopt_listener(listening, boot.address), SocketStream(parent, "agent"))
    reactor.start()
    tenancy.bootstrap()
    ended.wait()
    proc.callbacks.close()
    sys.exit(codes[0])


def _on_sigterm(end: Callable[[], None]) -> None:
    """Call `end` when the agent says so, and leave SIGTERM its usual meaning in children that user code forks."""
    masks = threading.local()

    def before() -> None:
        # Python forgets what arrives in a child before it is ready; the kernel does not.
        masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def after_in_parent() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.before)

    def after_in_child() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        after_in_parent()

    signal.signal(signal.SIGTERM, lambda number, frame: end())
    os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)
