"""`CallbackThread`: where callbacks of futures run, since user code never runs on the thread that moves messages."""

import threading
from collections.abc import Callable
from queue import SimpleQueue


class CallbackThread:
    """Runs what it is given, in order, on a thread of its own that starts when first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run_soon(self, callback: Callable[[], object]) -> None:
        """Run `callback` after those given before. What it raises goes to `threading.excepthook`."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._queue.put(callback)

    def close(self) -> None:
        """Run what is queued, then end the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._queue.put(None)
            if thread.ident != threading.get_ident():
                thread.join()

    def _run(self) -> None:
        while (callback := self._queue.get()) is not None:
            try:
                callback()
            except Exception as error:
                threading.excepthook(
                    threading.ExceptHookArgs((type(error), error, error.__traceback__, threading.current_thread()))
                )
