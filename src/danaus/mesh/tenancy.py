"""`Tenancy`: the life of one proc under its agent: bootstrap, serving, draining, end."""

import traceback
from collections.abc import Callable
from functools import partial

from danaus.errors import Error
from danaus.mesh.refs import ProcsRef, decode_procs
from danaus.protocol.boot import ProcBoot
from danaus.protocol.frame import Frame
from danaus.protocol.message import Drain, Message, ProcReady, Raised
from danaus.runtime.link import Link
from danaus.runtime.proc import Proc
from danaus.transport.stream import Listener, Stream


class Tenancy:
    """Runs a proc from its boot to its end; `on_end(code)` is called once, when it may exit."""

    def __init__(self, proc: Proc, boot: ProcBoot, on_end: Callable[[int], None]) -> None:
        self.proc = proc
        self.procs: ProcsRef = decode_procs(boot.procs)
        self._boot = boot
        self._on_end = on_end
        self._ended = False
        proc.actors.hold()
        proc.other_message = self._take
        proc.agent_lost = lambda reason: self.end(1)

    def serve(self, listener: Listener, stream: Stream) -> None:
        """Listen, and link to the agent over `stream`."""
        self.proc.listen(listener)
        self._link = self.proc.links.adopt(stream, initiator=False)
        self.proc.peers.opening(self.proc.identity.agent, self._link)

    def bootstrap(self) -> None:
        """Run the bootstrap on the calling thread; then actors can be made. If it raises, the proc ends."""
        if self._boot.bootstrap:
            book = self.proc.book
            for code_id, definition in self._boot.code:
                book.learn(code_id, definition)
            try:
                code_ids = [code_id for code_id, _ in self._boot.code]
                function, args, kwargs = book.loads_call(self._boot.bootstrap, code_ids)
                function(*args, **kwargs)
            except Exception as error:
                text = "".join(traceback.format_exception(error))
                self._link.send(ProcReady(Raised(type(error).__name__, str(error), text)))
                self.proc.reactor.post(partial(self._link.close_after_flush, Error("the bootstrap raised")))
                return
        self.proc.actors.release()

    def _take(self, link: Link, message: Message, frame: Frame) -> None:
        if isinstance(message, Drain):
            drain = partial(self.drain, message.timeout_s, now=message.now)
            if message.now:
                drain()
            else:
                self.proc.actors.when_released(drain)  # behind the actors that are to be drained

    def drain(self, timeout_s: float, *, now: bool) -> None:
        """Stop all actors, then end."""
        self._link.send(Drain(timeout_s, now))  # the end may come before the agent hears from who asked for it
        self.proc.actors.close()
        cells = self.proc.actors.all()
        left = len(cells)
        if not left:
            self._end_flushed()
            return

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.proc.reactor.post(self._end_flushed)

        for cell in cells:
            cell.stop(timeout_s, now=now, done=done)

    def _end_flushed(self) -> None:
        """End once the last answers are written; whoever does not read them is not waited for: the agent kills."""
        links = self.proc.links.all_open()
        left = len(links)
        if not left:
            self.end(0)

        def flushed() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.end(0)

        for link in links:
            link.when_flushed(flushed)

    def end(self, code: int) -> None:
        """Be done, once."""
        if not self._ended:
            self._ended = True
            self._on_end(code)
