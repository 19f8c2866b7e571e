"""The engine's one background thread: prepares switches while the program trains. Knows no TensorFlow.

A daemon thread, started by the first task; a forked child gets one of its own; at exit it is stopped before the interpreter goes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from collections.abc import Callable

from stepd.hook import unseen
from stepd.hook.collector import PATIENCE_SECONDS, pause
from stepd.hook.log import logger as log

_STOP_SECONDS = 5.0


class Worker:
    """Runs tasks one after the other; a task that raises is logged and forgotten."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Is the process about to end?"""
        return self._stopped

    def submit(self, task: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped:
                return
            if self._thread is None:
                self._thread = unseen.Thread(self._work, "stepd-engine")
                self._thread.start()
        self._tasks.put(task)

    def _work(self) -> None:
        while (task := self._next()) is not None:
            with pause:
                try:
                    task()
                except Exception:  # this thread has no caller; the next task is another session's, it may be
                    log.exception("a background task of the engine failed")
                del task

    def _next(self) -> Callable[[], None] | None:
        if pause.off:
            with contextlib.suppress(queue.Empty):
                return self._tasks.get(timeout=PATIENCE_SECONDS)
            pause.give_up()
        return self._tasks.get()

    def stop(self) -> None:
        """End the thread after the task that it is at. Nothing runs afterwards."""
        with self._lock:
            self._stopped = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._tasks.put(None)
            thread.join(_STOP_SECONDS)

    def forget(self) -> None:
        """In a forked child: the parent's thread and its tasks are not here."""
        self.__init__()  # type: ignore[misc]


worker = Worker()
os.register_at_fork(after_in_child=worker.forget)
atexit.register(worker.stop)
