"""The order of ops on local workers: the native executor in their processes, and the tables that tell it what comes first.

Seen from the training process, which asks the workers by their sockets; what a worker does about it is in local_worker.py. It must
not know sessions, strategies or copies.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from stepd.hook.order.native.stamp import NativeError

LANES = 1
"""How many ops with priorities a worker runs at once: it has one core. Its other thread serves transfers and what has none."""

ANSWER_SECONDS = 60.0


class WorkerTables:
    """Tables of priorities that all workers of a job have, and whether they keep to them."""

    def __init__(self, paths: Sequence[str]) -> None:
        """`paths`: the workers' sockets."""
        self._paths = tuple(paths)
        self._lock = threading.Lock()
        self._why: str | None = None

    def keep(self) -> str:
        """Have the workers run what has priorities in their order; "" when all do, else why not. Asked once they could."""
        with self._lock:
            if self._why is None or self._why:
                self._why = self._asked()
            return self._why

    def _asked(self) -> str:
        for path in self._paths:
            if why := _refused(path, {"keep_order": LANES}):
                return why
        return ""

    def new_table(self) -> int:
        """A number that no other process of the job has taken, which shares the workers."""
        return secrets.randbits(62)

    def add(self, table: int, priorities: Mapping[str, int]) -> None:
        """Add nodes, by name, to a table. Raises NativeError when a worker has not taken them."""
        message = {"table": table, "priorities": dict(priorities)}
        for path in self._paths:
            if why := _refused(path, message):
                raise NativeError(f"the order of ops was not told to all workers: {why}")

    def drop(self, table: int) -> None:
        """Have the workers forget a table; waits for nothing, since garbage collection calls it on any thread."""
        for path in self._paths:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.setblocking(False)
                connection.connect(path)
                connection.sendall(json.dumps({"forget": table}).encode())


def _refused(path: str, message: Mapping[str, Any]) -> str:
    """Why the worker at `path` does not do that, "" when it has."""
    try:
        answer = request(path, message)
    except (OSError, ValueError) as error:
        return f"the worker at {path} does not answer: {error}"
    return "" if answer.get("done") else str(answer.get("problem") or f"the worker at {path} does not understand it")


def request(path: str, message: Mapping[str, Any], seconds: float = ANSWER_SECONDS) -> dict[str, Any]:
    """What the worker at the socket `path` answers. Raises OSError when it is gone or silent, ValueError for what is no answer."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        connection.connect(path)
        connection.sendall(json.dumps(message).encode())
        connection.shutdown(socket.SHUT_WR)
        answer = json.loads(b"".join(iter(lambda: connection.recv(65536), b"")) or b"{}")
    if not isinstance(answer, dict):
        raise ValueError(f"it answers {answer!r}")
    return answer
