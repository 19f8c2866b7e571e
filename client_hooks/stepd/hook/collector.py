"""Python's collector of cycles does not run on the hook's threads, where it would run the program's finalizers.

It runs on whichever thread makes an object when its time has come. On a thread of the hook's a `__del__` would find another
thread's locals, a database's connection that refuses it, or a lock that the main thread holds while it waits for the hook: for
ever. So the collector is off while the hook's threads work, and catches up on the program's threads. The program sees it as it set
it itself. It must not know what the threads do.
"""

from __future__ import annotations

import atexit
import gc
import os
import threading
from types import TracebackType

from stepd.hook import clocks

_enable, _disable, _is_enabled = gc.enable, gc.disable, gc.isenabled
# So many objects before the collector's time has come it counts as due: a thread that leaves the pause makes a few on its way.
_MARGIN = 100
PATIENCE_SECONDS = 5.0
"""For how long the program's threads may take until they run a step; then the collector is on again in any case."""


class Pause:
    """A context in which the collector is off; several threads may be in it.

    If its time has come when the last one leaves, it stays off until a thread of the program's has caught up, but not for ever.
    """

    def __init__(self) -> None:
        self.off = False
        self._left = 0.0  # when the last one left while the collector was due
        self._depth = 0  # how many threads are in it
        self._wanted = True  # what the program asked for
        self._over = False
        self._lock = threading.RLock()  # again on one thread: a signal handler may ask, too

    def __enter__(self) -> None:
        with self._lock:
            if not self.off and not self._over:
                self._wanted = _is_enabled()
                _disable()
                gc.enable, gc.disable, gc.isenabled = _asked_to_enable, _asked_to_disable, _asked
                self.off, self._left = True, 0.0
            self._depth += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self.off:
                now = clocks.monotonic()
                self._left = self._left or now
                if not self._wanted or not _due(_MARGIN) or now - self._left > PATIENCE_SECONDS:
                    self._end()

    def _end(self) -> None:
        if gc.enable is _asked_to_enable:  # and not what somebody else has put there
            gc.enable = _enable
        if gc.disable is _asked_to_disable:
            gc.disable = _disable
        if gc.isenabled is _asked:
            gc.isenabled = _is_enabled
        self.off = False
        if self._wanted:
            _enable()

    def want(self, wanted: bool) -> None:
        """The program turns the collector on or off."""
        with self._lock:
            self._wanted = wanted
            if not self.off:
                (_enable if wanted else _disable)()

    def wanted(self) -> bool:
        """Is it on, as far as the program knows?"""
        with self._lock:
            return self._wanted if self.off else _is_enabled()

    def catch_up(self) -> None:
        """On a thread of the program's: collect what would have been collected there by now. Old objects can wait until it is
        over."""
        if self._wanted and _due(0):
            gc.collect(int(gc.get_count()[1] > gc.get_threshold()[1]))
        self.give_up()

    def give_up(self) -> None:
        """Have the collector on again, unless somebody is in the pause."""
        with self._lock:
            if self._depth == 0 and self.off:
                self._end()

    def stop(self) -> None:
        """At exit: the interpreter collects once more on its way."""
        with self._lock:
            self._over = True
            if self.off:
                self._end()

    def forget(self) -> None:
        """In a forked child: the threads that were in it are not here."""
        self._lock = threading.RLock()
        self._depth = 0
        if self.off:
            self._end()


def _due(margin: int) -> bool:
    """Has the time of the youngest objects come, or will it soon?"""
    most = gc.get_threshold()[0]
    return most > 0 and gc.get_count()[0] > most - margin


pause = Pause()


def _asked_to_enable() -> None:
    pause.want(True)


def _asked_to_disable() -> None:
    pause.want(False)


def _asked() -> bool:
    return pause.wanted()


os.register_at_fork(after_in_child=pause.forget)
atexit.register(pause.stop)
