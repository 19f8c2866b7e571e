"""The native executor's library in this process: loaded once, after TensorFlow, and never unloaded.

This is state of the process, and lies here alone. It must not know sessions, strategies or copies.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from stepd.hook.order.native.stamp import EXECUTOR_TYPE, FAILED, LIBRARY, NativeError, check_private, folder, stamp

NOT_BUILT = "it is not built (STEPD_ORDER=native builds it, and so does python -m stepd.hook.order.native.build)"
_tables = itertools.count(1)


class Tables(Protocol):
    """Where priorities are told: to this process (this module), or to local workers (local_order.py)."""

    def new_table(self) -> int: ...
    def add(self, table: int, priorities: Mapping[str, int]) -> None: ...
    def drop(self, table: int) -> None: ...


class _State:
    lock = threading.Lock()
    library: Any = None


def load(path: Path, text: str) -> None:
    """Load the library and register its executor. Raises NativeError when it is not this TensorFlow's or not this user's."""
    with _State.lock:
        if _State.library is not None:
            return
        check_private(path)
        try:
            library = ctypes.CDLL(str(path))
            library.stepd_order_stamp.restype = ctypes.c_char_p
            library.stepd_order_executor_type.restype = ctypes.c_char_p
            found = library.stepd_order_stamp().decode(), library.stepd_order_executor_type().decode()
        except (OSError, AttributeError) as error:
            raise NativeError(f"{path} cannot be loaded: {error}") from None
        if found != (text, EXECUTOR_TYPE):
            raise NativeError(f"{path} was built for another TensorFlow")
        for name in ("made", "delegated", "take_over"):
            getattr(library, f"stepd_order_{name}").restype = ctypes.c_int64
        library.stepd_order_add.argtypes = [ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64]
        library.stepd_order_drop.argtypes = [ctypes.c_int64]
        library.stepd_order_register()
        _State.library = library


def loaded() -> bool:
    return _State.library is not None


def load_if_built(environ: Mapping[str, str]) -> str:
    """Load what was built for this process's TensorFlow; returns "", or why there is nothing to load.

    NOT_BUILT: nobody has tried yet.
    """
    if loaded():
        return ""
    try:
        of = stamp()
        place = folder(of, environ)
        path = place / LIBRARY
        if path.exists():
            load(path, of.text)
            return ""
        failed = place / FAILED
        if failed.exists():
            return failed.read_text(encoding="utf-8")
    except (NativeError, OSError) as error:
        return str(error)
    return NOT_BUILT


def take_over(lanes: int) -> None:
    """Have the servers of this process run graphs that name a table on the executor too, `lanes` ops with priorities of a step at
    once. Raises NativeError where they make their executors in a way that this does not reach. Nothing undoes it.
    """
    if not _State.library.stepd_order_take_over(lanes):
        raise NativeError("this TensorFlow's servers make their executors by no call that can be redirected")


def new_table() -> int:
    """A number for a table of priorities, which nodes name in their attribute `_stepd_order`."""
    return next(_tables)


def add(table: int, priorities: Mapping[str, int]) -> None:
    """Add nodes, by name, to a table; executors that are made from then on know them."""
    names = b"".join(name.encode() + b"\0" for name in priorities)
    numbers = array("i", priorities.values())
    _State.library.stepd_order_add(table, names, numbers.buffer_info()[0], len(numbers))


def drop(table: int) -> None:
    """Forget a table; executors that were made with it keep what they know."""
    if _State.library is not None:
        _State.library.stepd_order_drop(table)


def counts() -> tuple[int, int]:
    """(executors that were made here, executors that were left to TensorFlow) in this process."""
    library = _State.library
    return (0, 0) if library is None else (int(library.stepd_order_made()), int(library.stepd_order_delegated()))
