"""Keeps standard output for what the command says: METIS and CP-SAT print remarks there by themselves."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def libraries_on_stderr() -> Iterator[None]:
    """What C code prints on standard output within goes to standard error. Python must not print there meanwhile."""
    try:
        kept = os.dup(1)
    except OSError:  # closed: nothing to keep clean
        yield
        return
    sys.stdout.flush()
    _flush()
    try:
        os.dup2(2, 1)
        yield
    finally:
        _flush()
        os.dup2(kept, 1)
        os.close(kept)


def _flush() -> None:
    """Write what C's own buffers hold, which would go wherever the descriptor leads later."""
    ctypes.CDLL(None).fflush(None)
