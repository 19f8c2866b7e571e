"""Deletes sessions that restarts have replaced, where that takes long: on threads beside whoever restarted.

TensorFlow waits for the thread that tunes an iterator when it deletes one: for up to a minute (measured, without stepd too).
Neither the report of a switch nor the program that closes its session has to wait for that. It must not know why a session goes.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Callable

from stepd.hook import clocks, unseen

# So many at once. Each of them holds what its session held; whoever comes when all are busy deletes by itself.
_MOST = 8
_STOP_SECONDS = 5.0


class Departing:
    """Sessions on their way out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._stopped = False

    def run(self, delete: Callable[[], None]) -> None:
        """Have `delete` done, on a thread of its own or here and now."""
        with self._lock:
            beside = not self._stopped and len(self._threads) < _MOST
            if beside:
                thread = unseen.Thread(functools.partial(self._work, delete), "stepd-departing")
                self._threads.add(thread)
                thread.start()
        if not beside:
            delete()

    def _work(self, delete: Callable[[], None]) -> None:
        try:
            delete()
        finally:
            del delete
            with self._lock:
                self._threads.discard(threading.current_thread())

    def stop(self) -> None:
        """At exit: a thread that comes back from TensorFlow while the interpreter goes would end the process. Not for ever."""
        with self._lock:
            self._stopped, left = True, set(self._threads)
        deadline = clocks.monotonic() + _STOP_SECONDS
        for thread in left:
            thread.join(max(0.0, deadline - clocks.monotonic()))

    def forget(self) -> None:
        """In a forked child: the parent's threads are not here."""
        self.__init__()  # type: ignore[misc]


departing = Departing()
os.register_at_fork(after_in_child=departing.forget)
atexit.register(departing.stop)
