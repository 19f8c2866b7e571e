"""While TensorFlow resets the sessions of the process no other thread deletes one. It must not know what a session is.

TensorFlow's reset first notes all sessions of the process, and goes through these without a lock. A plain program deletes none
beside; the hook, whose threads delete the sessions that restarts have replaced, would.
"""

from __future__ import annotations

import os
import threading


class Staying:
    """A context that one thread is in at a time: of a reset, and of whoever takes a session off TensorFlow's list."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)  # whoever held it is not there

    def _renew(self) -> None:
        self._lock = threading.RLock()  # again on one thread: a signal handler may reset sessions

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


sessions_stay = Staying()
