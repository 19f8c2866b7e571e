"""The locks of a session in a forked child, where no other thread of the parent's is. The child closes the session when it leaves
its block. It must not know what is done under the locks.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

_alive: weakref.WeakSet[SessionEngine] = weakref.WeakSet()


def watch(engine: SessionEngine) -> None:
    """From here on a child of a fork has locks of its own for `engine`."""
    _alive.add(engine)


def _renew() -> None:
    for engine in _alive:
        engine.lock, engine.in_use = threading.RLock(), threading.Lock()
        switcher = engine.routing.known_switcher()
        if switcher is not None:
            switcher.lock = engine.lock


os.register_at_fork(after_in_child=_renew)
