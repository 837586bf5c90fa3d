"""The program of a proc's process."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType

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
    own = os.getpid()

    def handle(number: int, _: FrameType | None) -> None:
        if os.getpid() == own:
            end()
        else:  # forked a moment ago
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handle)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
