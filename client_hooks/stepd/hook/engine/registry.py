"""Which engine answers for a raw session of TensorFlow's. It must not know what an engine does.

A raw session is known by its address: one that is made later may lie where a deleted one lay, and Python hands out the same object
for both as long as anybody holds it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

E = TypeVar("E")
# Of each engine: so many raw sessions that restarts have replaced, and all that somebody else holds (an object that took over a
# session's attributes once).
_MOST_RETIRED = 8


def _references() -> int:
    """How often what a list and a dictionary hold is referred to if nobody else does."""
    listed = [object()]
    _known = dict.fromkeys(listed)
    return sys.getrefcount(listed[0])


_OURS = _references()


class Registry(Generic[E]):
    """Engines by the raw session that they run on now, and by those that restarts have replaced lately."""

    def __init__(self) -> None:
        self._engines: dict[Any, E] = {}
        # By the engine's id: two engines may go by one name. It is there until it is dismissed.
        self._retired: dict[int, list[Any]] = {}

    def get(self, raw: Any) -> E | None:
        return self._engines.get(raw)

    def fresh(self, make: Callable[[], Any], delete: Callable[[Any], None], mine: E | None = None) -> Any:
        """A raw session from `make` that no engine but `mine` answers for, not even as one that was replaced."""
        mistaken = []
        try:
            while self._engines.get(raw := make(), mine) is not mine:
                mistaken.append(raw)
        finally:
            for one in mistaken:
                delete(one)
        return raw

    def answers(self, engine: E, raw: Any) -> None:
        """`engine` begins, on `raw`."""
        self._engines[raw] = engine

    def replaced(self, old: Any, new: Any) -> None:
        """The engine that answers for `old` goes on with `new`.

        A thread may have read `session._session` just before and call with the old one: it stands for the same engine.
        """
        engine = self._engines[new] = self._engines[old]
        retired = self._retired.setdefault(id(engine), [])
        for again in (old, new):
            if again in retired:
                retired.remove(again)
        retired.append(old)
        for k in reversed(range(len(retired) - _MOST_RETIRED)):
            if retired[k] is not new and sys.getrefcount(retired[k]) <= _OURS:
                first = retired.pop(k)
                if self._engines.get(first) is engine:
                    del self._engines[first]

    def dismiss(self, engine: E, raw: Any) -> None:
        """No raw session stands for this engine any more; `raw`: the one that it runs on."""
        for one in (raw, *self._retired.pop(id(engine), ())):
            if self._engines.get(one) is engine:
                del self._engines[one]
