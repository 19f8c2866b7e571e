"""The numbers in the names of queues, as the program would see them plainly.

TensorFlow calls a queue without a `shared_name` "_4_files": op "files", the process's fifth kernel with a resource of its own, of
which iterators are others. Errors say so. A restart makes these resources again, with the next free numbers, and what the process
makes later is further on. So what a restart has made is noted for the whole process, and texts are given the plain numbers.
"""

from __future__ import annotations

import bisect
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from tensorflow.core.framework import types_pb2

from stepd.hook.engine import capi
from stepd.hook.engine.side import Side
from stepd.hook.engine.state import Carrier

_CALLED = re.compile(r'\(name="(.*)", device="', re.DOTALL)  # in what StringFormat says of a resource
_NUMBERED = re.compile(r"_(\d+)_.+", re.DOTALL)
_OWNERS = re.compile(r"\w*(Queue|Reader)(V2)?|Barrier|\w*ConditionalAccumulator")
_QUOTED = re.compile(r"(?<=')_(\d+)_([^']+)(?=')")


class Names:
    """What TensorFlow calls the resources of some of the program's ops in one session."""

    def __init__(self, side: Side, ops: Iterable[str]) -> None:
        self._side, self._ops = side, list(ops)
        carrier = Carrier(side.prefix)
        for i, name in enumerate(self._ops):
            carrier.node(f"called{i}", "StringFormat", [side.user(name)], T=[types_pb2.DT_RESOURCE])
        made = side.take_in(carrier)
        self._told = [capi.output(operation, 0) for operation in made.values()]
        side.build(self._told)

    def now(self) -> dict[str, str]:
        """By op. What is not there is made."""
        told = zip(self._ops, self._side.run(self._told), strict=True)
        return {name: found[1] for name, text in told if (found := _CALLED.search(text.decode(errors="replace")))}


class Numbers:
    """Which numbers stand for which plain ones."""

    def __init__(self) -> None:
        self._again: dict[int, int] = {}  # of what was made again -> the number that it had before
        self._sorted: list[int] = []
        self._lock = threading.Lock()

    def made_again(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """By op: what resources are called in a session, and in the one that takes its place."""
        with self._lock:
            for op, name in after.items():
                old, new = _NUMBERED.fullmatch(before.get(op, "")), _NUMBERED.fullmatch(name)
                if old and new and int(new[1]) not in self._again:
                    self._again[int(new[1])] = int(old[1])
                    bisect.insort(self._sorted, int(new[1]))

    def plain_text(self, text: str, graph: Any) -> str:
        """An error's text with plain numbers. `graph`: the program's."""

        def name(found: re.Match[str]) -> str:
            return f"_{self._plain(int(found[1]))}_{found[2]}" if _is_numbered(graph, found[2]) else found[0]

        return _QUOTED.sub(name, text) if self._again else text

    def _plain(self, number: int) -> int:
        with self._lock:
            while number in self._again:
                number = self._again[number]
            return number - bisect.bisect_left(self._sorted, number)


def _is_numbered(graph: Any, name: str) -> bool:
    """Is it an op whose resource TensorFlow calls by a number, where the program does not call it otherwise?"""
    try:
        return bool(_OWNERS.fullmatch(graph.get_operation_by_name(name).type))
    except (KeyError, ValueError):
        return False


NUMBERS = Numbers()
"""Of this process, as TensorFlow counts."""
