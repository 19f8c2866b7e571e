"""Keeps the daemon small: one heap for all threads, and what was freed goes back to the system.

glibc gives every thread a heap of its own and keeps what is freed; graphs and traces are parsed on threads, and their memory would
stay with the daemon for good. Where the C library is another one nothing happens. It must not know what the memory was for.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_ARENA_MAX = -8  # mallopt(3)


def one_heap() -> None:
    """Have all threads allocate from one heap; to be called before there are threads."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


class Returns:
    """Gives freed memory back, once after each time that much of it was used."""

    def __init__(self) -> None:
        self._due = False

    def used(self) -> None:
        """Something large was parsed, planned or dropped."""
        self._due = True

    def give_back(self) -> bool:
        """Hand freed pages to the system if something large was used since the last time; True when it did. Takes milliseconds."""
        due, self._due = self._due, False
        if due:
            with suppress(AttributeError, OSError):
                ctypes.CDLL(None).malloc_trim(0)
        return due
