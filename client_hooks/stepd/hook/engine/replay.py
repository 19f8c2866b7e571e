"""Brings the random streams of a new session to where those of the old one are, by drawing what the old one has drawn.

It may be called again while the old session goes on drawing. It must not know how draws are counted (see `draws`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from stepd.hook.engine import capi, draws
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.mirror import Mirror

# Values drawn by one op in one run: 4 to 8 MB, which live as long as the run.
_MOST_AT_ONCE = 1 << 20


class Replay:
    """The random ops of one new session, on which nothing else runs yet."""

    def __init__(self, session: Any, mirror: Mirror, view: GraphView) -> None:
        self._session = session
        self._mirror = mirror
        self._view = view
        self._done: dict[str, int] = {}

    def advance(self, wanted: Mapping[str, int]) -> None:
        """Have every op of `wanted` (name -> draws, none fewer than the last time) drawn so often."""
        ahead = {name: count - self._done.get(name, 0) for name, count in wanted.items() if count > self._done.get(name, 0)}
        sizes = {name: draws.drawn_at_once(self._view, self._view.nodes[name]) for name in ahead}
        self._draw_singly({name: count for name, count in ahead.items() if sizes[name] is None})
        self._draw_in_bulk({name: count * size for name, count in ahead.items() if (size := sizes[name]) is not None})
        self._done.update(wanted)

    def _draw_singly(self, left: dict[str, int]) -> None:
        while left:
            self._run({}, left)
            left = {name: count - 1 for name, count in left.items() if count > 1}

    def _draw_in_bulk(self, left: dict[str, int]) -> None:
        """A stream goes on by as much as was drawn from it, in however many runs: one run of another shape does for many."""
        left = {name: count for name, count in left.items() if count}
        while left:
            shapes: dict[tuple[str, int], int] = {}
            now = {}
            for name, count in left.items():
                # Ops that take their shape from the same place draw alike in one run.
                if shapes.setdefault(self._view.nodes[name].inputs[0], min(count, _MOST_AT_ONCE)) <= count:
                    now[name] = shapes[self._view.nodes[name].inputs[0]]
            feeds = {}
            for (source, index), count in shapes.items():
                reader = next(name for name in now if self._view.nodes[name].inputs[0] == (source, index))
                dtype = np.int64 if draws.shape_is_long(self._view.nodes[reader]) else np.int32
                feeds[capi.output(self._mirror.operation(source), index)] = np.array([count], dtype)
            self._run(feeds, now)
            left = {name: rest for name, count in left.items() if (rest := count - now.get(name, 0))}

    def _run(self, feeds: dict[Any, Any], names: Iterable[str]) -> None:
        capi.run_own(self._session, feeds, [], [self._mirror.operation(name) for name in names])
