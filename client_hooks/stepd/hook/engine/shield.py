"""Work that nothing may break off half-way, such as Ctrl-C in the middle of a switch. Knows no TensorFlow.

Python runs signal handlers between any two instructions of the main thread, and a handler may raise. So the work is done on another
thread while the main thread waits; what a handler raised meanwhile is raised when the work is complete.

Python ends daemon threads when they next want its lock once the interpreter goes. In a run of a session that is well; in most
other calls of TensorFlow it ends the process ("exception not rethrown"). So the interpreter waits for such work, and little is
begun then.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from stepd.hook import unseen
from stepd.hook.collector import pause

T = TypeVar("T")

_STOP_SECONDS = 5.0


class AtWork:
    """How many of the program's threads, but for the main one, are at such work."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self.leaving = False  # the interpreter is about to go

    def __enter__(self) -> None:
        with self._changed:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        """At exit: wait until none is at work; not for ever."""
        with self._changed:
            self.leaving = True
            self._changed.wait_for(lambda: self._count == 0, _STOP_SECONDS)

    def forget(self) -> None:
        """In a forked child: the parent's threads are not here."""
        self.__init__()  # type: ignore[misc]


at_work = AtWork()
os.register_at_fork(after_in_child=at_work.forget)
atexit.register(at_work.stop)


def unbroken(work: Callable[[], T]) -> T:
    """Do `work`, whole or not at all; on the calling thread unless that is the main one. The caller holds no lock that it needs.

    Raises what `work` raises; else the first exception that a signal handler raised meanwhile.
    """
    # Not `current_thread`, which enters a thread of TensorFlow's own among the program's for good.
    elsewhere = threading.get_ident() != threading.main_thread().ident
    if elsewhere:
        with at_work:
            return work()
    if sys.is_finalizing():  # no other thread runs any more
        return work()
    done: list[Any] = []
    failed: list[BaseException] = []
    begun, finished = threading.Lock(), threading.Lock()
    finished.acquire()

    def attempt() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            done.append(work())
        except BaseException as e:
            failed.append(e)
        finally:
            finished.release()

    broken: list[BaseException] = []
    with pause:
        try:
            unseen.Thread(attempt, "stepd-switch").start()
        except BaseException as e:
            if begun.acquire(blocking=False):  # from here on the thread, if there is one, does nothing
                if isinstance(e, RuntimeError):  # the interpreter is ending and starts no threads
                    return work()
                raise
            broken.append(e)
        _wait(finished, lambda: bool(done or failed), broken)
    if pause.off:
        pause.catch_up()
    if failed:
        raise failed[0]
    if broken:
        raise broken[0]
    result: T = done[0]
    return result


def _wait(finished: threading.Lock, is_over: Callable[[], bool], broken: list[BaseException]) -> None:
    """Until it is over, whatever handlers raise; one may do so when the lock has been acquired already, or between two rounds."""
    try:
        while True:
            try:
                while not is_over():
                    finished.acquire()
                return
            except BaseException as e:
                broken.append(e)
    except BaseException as e:
        broken.append(e)
        _wait(finished, is_over, broken)
