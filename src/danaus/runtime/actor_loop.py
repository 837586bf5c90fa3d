"""`ActorLoop`: the asyncio loop of one actor that has asynchronous endpoints. Imported only when there is one."""

import asyncio
import threading
from collections.abc import Callable, Coroutine

from danaus.errors import CallCancelled


class ActorLoop:
    """Runs one coroutine at a time for messages, and whatever tasks they left behind in between."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.get_ident()
        self._task: asyncio.Task[object] | None = None
        self._purpose: object = None
        self._strays: set[asyncio.Task[object]] = set()

    def run(self, coroutine: Coroutine[object, object, object], purpose: object = None) -> object:
        """Run `coroutine` to its end on the calling thread. `purpose` is what `cancel` names it by."""
        self._purpose = purpose
        self._task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(self._task)
        except asyncio.CancelledError as error:
            raise CallCancelled("the endpoint was cancelled, or raised CancelledError itself") from error
        finally:
            self._task = self._purpose = None

    def run_idle(self) -> None:
        """Run left tasks until `leave_idle`."""
        self._loop.run_forever()

    def leave_idle(self) -> None:
        """End `run_idle`, now or as soon as it begins. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop_if_idle)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run `callback` on the loop, if it runs, or when it next does. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def cancel(self, purpose: object) -> None:
        """Cancel the coroutine that runs, or is about to run, for `purpose`. From any thread."""
        self.call_soon(lambda: self._cancel(purpose))

    def spawn(self, coroutine: Coroutine[object, object, object]) -> None:
        """Run `coroutine` beside what runs. On the loop."""
        task = self._loop.create_task(coroutine)
        self._strays.add(task)  # the loop itself keeps only weak references
        task.add_done_callback(self._strays.discard)

    def runs_here(self) -> bool:
        """Whether the calling thread is inside this loop."""
        return self._loop.is_running() and self._thread == threading.get_ident()

    def close(self) -> None:
        """Cancel left tasks, wait for them, and close the loop."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _cancel(self, purpose: object) -> None:
        if self._task is not None and self._purpose is purpose:
            self._task.cancel()

    def _stop_if_idle(self) -> None:
        if self._task is None:
            self._loop.stop()


def run_once(coroutine: Coroutine[object, object, object]) -> object:
    """Run a coroutine of an actor that has no loop of its own."""
    return asyncio.run(coroutine)
