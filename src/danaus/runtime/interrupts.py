"""Ctrl-C must not cut a frame in half: an interrupt of the main thread inside the runtime waits until it is out."""

import signal
import threading
from _signal import getsignal  # type: ignore[import-not-found]  # without the enum, which costs more than a wait
from collections.abc import Callable
from types import FrameType
from typing import Literal

_Handler = Callable[[int, FrameType | None], object]


class InterruptShield:
    """Wraps the SIGINT handler of the main thread. `with shield:` holds interrupts back; outside they act as before.

    One for each client. Works only when made in the main thread; elsewhere `installed` is False and nothing changes.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        """Make one; `wake` ends a wait of the main thread inside the shield."""
        self.pending = False
        """Whether an interrupt is held back: a wait should end."""
        self._wake = wake
        self._depth = 0
        self._exit_code: int | None = None
        self._swallow = False
        self.exit_raised = False
        """Whether the main thread has raised what `exit_main` asked for."""
        self._main = threading.main_thread().ident
        self._before: _Handler | None = None

    def install(self) -> None:
        """Put this shield round the handler in force now, if this is the main thread and there is one."""
        if threading.get_ident() != self._main:
            return
        before = signal.getsignal(signal.SIGINT)
        if callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._on_signal)

    def uninstall(self) -> None:
        """Give the old handler back, unless somebody else's was set since."""
        if self._before is not None and threading.get_ident() == self._main:
            if signal.getsignal(signal.SIGINT) == self._on_signal:
                signal.signal(signal.SIGINT, self._before)
            self._before = None

    @property
    def protects_main(self) -> bool:
        """Whether interrupts of the main thread come through this shield."""
        return self._before is not None and bool(getsignal(signal.SIGINT) == self._on_signal)

    @property
    def spares_main(self) -> bool:
        """Whether the main thread may do the runtime's work: no interrupt raises in the midst of it."""
        handler = getsignal(signal.SIGINT)
        return bool(handler == self._on_signal) if callable(handler) else handler is not None

    def exit_main(self, code: int) -> bool:
        """Make the main thread raise `SystemExit(code)`, also out of a blocking wait; False if that cannot be done."""
        if not self.protects_main or self._main is None:
            return False
        self._exit_code = code
        signal.pthread_kill(self._main, signal.SIGINT)
        return True

    def abandon_exit(self) -> None:
        """The main thread is about to end anyway: it no longer raises what `exit_main` asked for."""
        if self._exit_code is not None:
            self._exit_code = None
            self._swallow = True

    def __enter__(self) -> None:
        if threading.get_ident() == self._main:
            self._depth += 1

    def __exit__(self, *exc: object) -> Literal[False]:
        if threading.get_ident() == self._main:
            self._depth = max(0, self._depth - 1)
            if self.pending and not self._depth:
                self.pending = False
                self._act(signal.SIGINT, None)
        return False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._depth:
            self.pending = True
            self._wake()
        else:
            self._act(number, frame)

    def _act(self, number: int, frame: FrameType | None) -> None:
        if self._exit_code is not None:
            code, self._exit_code = self._exit_code, None
            self.exit_raised = True
            raise SystemExit(code)
        if self._swallow:
            self._swallow = False
            return
        if self._before is not None:
            self._before(number, frame)
