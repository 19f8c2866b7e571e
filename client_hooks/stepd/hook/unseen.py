"""Threads of the hook's own that the program does not meet: programs join all that `threading.enumerate()` lists, or count them.

`threading` finds its threads in two dictionaries; those are replaced by ones that keep the hook's threads to themselves when
they are listed or counted, and serve every other use. It must not know what the threads do.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

_ours: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


class _Register(dict[Any, Any]):
    """A dictionary of threads that does not tell of the hook's."""

    def values(self) -> Any:
        return [thread for thread in self.everybody() if thread not in _ours]

    def everybody(self) -> list[threading.Thread]:
        return list(super().values())

    def __len__(self) -> int:
        return len(self.values())


class Thread(threading.Thread):
    """A daemon thread that calls `work`; a tracer or profiler that the program has put into all threads does not follow it."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._task: Callable[[], object] | None = work
        hide(self)

    def run(self) -> None:
        sys.settrace(None)
        sys.setprofile(None)
        work, self._task = self._task, None  # what it refers to goes with it
        if work is not None:
            work()


def hide(thread: threading.Thread) -> None:
    """Have `thread` be the hook's from now on."""
    _ours.add(thread)
    if _are_plain():
        with threading._active_limbo_lock:  # type: ignore[attr-defined]  # private, and so looked at first
            if _are_plain():
                threading._active = _Register(threading._active)  # type: ignore[attr-defined]
                threading._limbo = _Register(threading._limbo)  # type: ignore[attr-defined]


def _are_plain() -> bool:
    """Are they the dictionaries of the Pythons that we know, and nobody else's? If not, the threads are seen."""
    kinds = (type(getattr(threading, name, None)) for name in ("_active", "_limbo"))
    return all(kind is dict for kind in kinds) and hasattr(threading, "_active_limbo_lock")


def everybody() -> list[threading.Thread]:
    """All threads that `threading` knows, the hook's too."""
    known = getattr(threading, "_active", None)
    return known.everybody() if isinstance(known, _Register) else threading.enumerate()


def made_green() -> str:
    """Whose threads the program's are where these are no threads of the system (gevent's or eventlet's patches), or nothing.

    gRPC waits on such a "thread" without a word to the others, and with it waits the whole program.
    """
    for library, module, asked, what in (
        ("gevent", "gevent.monkey", "is_module_patched", "threading"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched", "thread"),
    ):
        is_patched = getattr(sys.modules.get(module), asked, None)
        if is_patched is not None and is_patched(what):
            return library
    return ""
