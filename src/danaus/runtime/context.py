"""What runs now on this thread: the one context variable, and the slot for the runtime of the whole process."""

import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from danaus.protocol.message import Cast


class Interruptible(Protocol):
    """An actor, as a wait on its thread sees it."""

    def runs_here(self) -> bool:
        """Whether the calling thread is the actor's own: others may have copied its context."""

    def check_may_block(self) -> None:
        """Raise `WrongThread` if the actor's own loop runs on this thread."""

    def run_urgent(self) -> None:
        """Do what cannot wait until the endpoint ends: supervision."""

    def set_wake(self, wake: Callable[[], None] | None) -> None:
        """While set, calling `wake` ends the wait so that `run_urgent` gets its turn."""


@dataclass(slots=True)
class Running:
    """The actor whose code runs, the runtime it belongs to, and the message it handles."""

    runtime: object
    actor: Interruptible
    cast: Cast | None


running: ContextVar[Running | None] = ContextVar("running", default=None)


class ProcessSlot:
    """Holds the runtime that code outside any actor uses: the client's, or the proc's own."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._runtime: object | None = None

    def get(self, make: Callable[[], object]) -> object:
        """The runtime, made on first use."""
        runtime = self._runtime
        if runtime is None:
            with self._lock:
                if self._runtime is None:
                    self._runtime = make()
                runtime = self._runtime
        return runtime

    def swap(self, runtime: object | None) -> object | None:
        """Put another one in (or none) and return the one before."""
        with self._lock:
            before, self._runtime = self._runtime, runtime
            return before


process_slot = ProcessSlot()
