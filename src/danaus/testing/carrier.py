"""`Carrier`: carries messages between in-memory procs as a `FaultPlan` decides, and holds those of frozen ones."""

import threading
from collections.abc import Callable
from functools import partial

from danaus.errors import RemoteProtocolError
from danaus.protocol.frame import Frame, FrameDecoder, encode_frame
from danaus.protocol.message import Message, decode_message
from danaus.runtime.reactor import Reactor
from danaus.testing.faults import FaultPlan, Kill

_Deliver = Callable[[bytes], None]


class Carrier:
    """Applies a plan to each link on its own, named `sender>receiver`. Handshakes are left alone."""

    def __init__(self, plan: FaultPlan[Message], reactor: Reactor, kill: Callable[[str], None]) -> None:
        self._plan = plan
        self._plans: dict[str, FaultPlan[Message]] = {}
        self._reactor = reactor
        self._kill = kill
        self._lock = threading.RLock()
        self._frozen: set[str] = set()
        self._held: list[tuple[str, str, bytes, _Deliver]] = []

    def carry(self, sender: str, receiver: str, data: bytes, deliver: _Deliver) -> None:
        """Deliver whole frames now, later, twice or never."""
        if not self._plan.rules:
            self._arrive(sender, receiver, data, deliver)
            return
        with self._lock:
            link = f"{sender}>{receiver}"
            plan = self._plans.get(link)
            if plan is None:
                plan = self._plans[link] = self._plan.for_link(link)
            for frame in _frames_of(data):
                self._carry_frame(plan, sender, receiver, frame, deliver)
            for fault in plan.take_due():
                if isinstance(fault, Kill):
                    self._kill(fault.proc)
                else:
                    self._frozen.add(fault.proc)

    def freeze(self, proc: str) -> None:
        """Hold all that goes to or from `proc`."""
        with self._lock:
            self._frozen.add(proc)

    def thaw(self, proc: str) -> None:
        """Deliver what was held for `proc`, in its order."""
        with self._lock:
            self._frozen.discard(proc)
            held, self._held = self._held, []
            for sender, receiver, data, deliver in held:
                self._arrive(sender, receiver, data, deliver)

    def _carry_frame(
        self, plan: FaultPlan[Message], sender: str, receiver: str, frame: Frame, deliver: _Deliver
    ) -> None:
        data = b"".join(encode_frame(frame.header, frame.payload, frame.buffers))
        try:
            message = decode_message(frame.header)
        except RemoteProtocolError:
            self._arrive(sender, receiver, data, deliver)
            return
        now = self._reactor.clock.now()
        for moment, _ in plan.apply(message, now):
            if moment <= now:
                self._arrive(sender, receiver, data, deliver)
            else:
                self._reactor.call_later(moment - now, partial(self._arrive, sender, receiver, data, deliver))

    def _arrive(self, sender: str, receiver: str, data: bytes, deliver: _Deliver) -> None:
        with self._lock:
            if self._frozen and (sender in self._frozen or receiver in self._frozen):
                self._held.append((sender, receiver, data, deliver))
            else:
                deliver(data)


def _frames_of(data: bytes) -> list[Frame]:
    """The frames of one send, which holds whole ones."""
    scratch = memoryview(bytearray(data))
    return FrameDecoder(scratch).received(len(scratch))
