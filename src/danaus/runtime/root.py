"""`Root`: the client's end of the ownership tree: which failures nobody received, and what is done about them."""

import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from danaus.errors import Failure
from danaus.protocol.supervision import RootLedger, RunHook
from danaus.runtime.callbacks import CallbackThread
from danaus.runtime.reactor import Reactor

Hook = Callable[[Failure], object]


class Root:
    """Runs the hook for each failure that no owner handled and no caller received."""

    def __init__(self, reactor: Reactor, callbacks: CallbackThread, *, grace_s: float) -> None:
        self.hook: Hook = self.print_and_exit
        self.end_process: Callable[[int], object] = reactor.shield.exit_main
        """Ends the program in order, with an exit code."""
        self._reactor = reactor
        self._callbacks = callbacks
        self._lock = threading.Lock()
        self._ledger = RootLedger(grace_s)
        self._holders: Counter[str] = Counter()
        self._timer: object | None = None
        self.exit_code: int | None = None
        """Set when the hook decided that the program ends."""

    def failed(self, key: str, failure: Failure) -> None:
        """A failure that no owner handled."""
        with self._lock:
            now = self._reactor.clock.now()
            self._ledger.failed(key, failure, now=now, awaited=self._holders[key] > 0)
            self._schedule()

    def claim(self, keys: Sequence[str], passive: bool) -> "RootClaim":
        """What a future holds whose outcome contains the failures `keys`."""
        if not passive:
            with self._lock:
                for key in keys:
                    self._holders[key] += 1
                    self._ledger.held(key)
        return RootClaim(self, keys, passive)

    def received(self, keys: Sequence[str]) -> None:
        """A caller received these failures."""
        with self._lock:
            for key in keys:
                self._ledger.claimed(key)

    def drop_soon(self, keys: Sequence[str]) -> None:
        """A future that held these failures is gone, looked at or not. From anywhere."""
        if not self._reactor.disabled:
            self._reactor.post(lambda: self._dropped(keys))

    def _dropped(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in keys:
                self._holders[key] -= 1
                if self._holders[key] <= 0:
                    del self._holders[key]
                    self._ledger.abandoned(key)
            self._schedule()

    def close(self) -> None:
        """The program ends: run the hook for what is left."""
        with self._lock:
            hooks = self._ledger.closing()
        self._run(hooks)

    def print_and_exit(self, failure: Failure) -> None:
        """The default hook: one block on stderr, then exit code 1. In a notebook only the block."""
        sys.stderr.write(f"danaus: nobody received or handled this failure\n{failure}\n")
        sys.stderr.flush()
        if hasattr(sys, "ps1") or "ipykernel" in sys.modules:
            return
        self.exit_code = 1
        self.end_process(1)

    def _run(self, hooks: Sequence[RunHook]) -> None:
        for each in hooks:
            self._callbacks.run_soon(lambda failure=each.failure: self.hook(failure))  # type: ignore[misc]

    def _schedule(self) -> None:
        deadline = self._ledger.next_deadline()
        if self._timer is not None:
            self._reactor.cancel_timer(self._timer)
            self._timer = None
        if deadline is not None:
            self._timer = self._reactor.call_later(max(0.0, deadline - self._reactor.clock.now()), self._tick)

    def _tick(self) -> None:
        with self._lock:
            hooks = self._ledger.tick(self._reactor.clock.now())
            self._schedule()
        self._run(hooks)


class RootClaim:
    """Held by a future; says whether somebody looked before it was dropped."""

    def __init__(self, root: Root, keys: Sequence[str], passive: bool) -> None:
        self._root = root
        self._keys = keys
        self._passive = passive

    def received(self) -> None:
        """The outcome was raised or returned to a caller."""
        self._root.received(self._keys)

    def __del__(self) -> None:
        if not self._passive:
            # Garbage is collected anywhere, also where the ledger's lock is held.
            self._root.drop_soon(self._keys)
