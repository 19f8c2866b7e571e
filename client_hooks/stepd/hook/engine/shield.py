"""Work that nothing may break off half-way, such as Ctrl-C in the middle of a switch. Knows no TensorFlow.

Python runs signal handlers between any two instructions of the main thread, and a handler may raise. So the work is done on another
thread while the main thread waits; what a handler raised meanwhile is raised when the work is complete.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from stepd.hook import unseen
from stepd.hook.collector import pause

T = TypeVar("T")


def unbroken(work: Callable[[], T]) -> T:
    """Do `work`, whole or not at all; on the calling thread unless that is the main one. The caller holds no lock that it needs.

    Raises what `work` raises; else the first exception that a signal handler raised meanwhile.
    """
    # Not `current_thread`, which enters a thread of TensorFlow's own among the program's for good.
    elsewhere = threading.get_ident() != threading.main_thread().ident
    if elsewhere or sys.is_finalizing():  # no other thread runs any more
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
