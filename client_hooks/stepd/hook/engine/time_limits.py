"""A time limit of a step that waits for nobody. Plainly such a step runs to its end, whatever the limit, and only then is it said
that it was too long: all that it updates is updated. On several devices TensorFlow would end the transfers at the limit, and what
waits for one would be lost. So on a copy it runs without a limit, and is measured.

It must not know what a strategy is, nor how runs pass the gate.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors

from stepd.hook import clocks
from stepd.hook.engine import capi, meeting
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.order.steps import executed
from stepd.hook.ports import StepKind

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

_TOO_LONG = "Timed out waiting for notification"  # as a direct session says
# By session: the version of its graph, and which of its steps wait. So a step asks once for the lock, which a switch may hold.
_waits: weakref.WeakKeyDictionary[SessionEngine, tuple[int, dict[StepKind, bool]]] = weakref.WeakKeyDictionary()


def of(engine: SessionEngine, kind: Kind, options: Any) -> float:
    """Seconds that a run of `kind` with `options` (a TF_Buffer of RunOptions, or None) may take, where it waits for nobody and may
    be on a copy; 0.0 else. Called before the gate: of a new step it takes the engine's lock."""
    if engine.target or engine.cluster is not None:
        return 0.0  # a master ends what computes, too
    if engine.routing.known_switcher() is None and engine.chaos is None:  # which may switch before this very run
        return 0.0
    asked = 0 if options is None else config_pb2.RunOptions.FromString(capi.buffer_bytes(options)).timeout_in_ms
    milliseconds = asked or engine.limit_ms
    if milliseconds <= 0:
        return 0.0
    version, known = _waits.get(engine, (-1, {}))
    if version != engine.mirror.version:
        known = {}
        _waits[engine] = engine.mirror.version, known
    if kind.step not in known:
        with engine.lock:
            sight = engine.switcher().sight
            view, several = sight.view(), len(sight.homes(kind.step)) > 1  # whose transfers end with the limit plainly, too
        known[kind.step] = several or any(meeting.may_wait(view, name) for name in executed(view, kind.step))
    return 0.0 if known[kind.step] else milliseconds / 1000.0


def run(
    engine: SessionEngine, seconds: float, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any, route: Route | None
) -> Any:
    """A plain run on a route, which may take `seconds`. Raises DeadlineExceededError."""
    on = engine.runs.run_on
    if route is None:
        return on(options, feeds, fetches, targets, metadata, route)
    # What TensorFlow builds before the first run is none of its time.
    capi.build_executors(engine.raw, [route.feeds[tensor] for tensor in feeds], route.fetches, route.targets)
    asked = config_pb2.RunOptions() if options is None else config_pb2.RunOptions.FromString(capi.buffer_bytes(options))
    asked.timeout_in_ms = capi.NO_TIME_LIMIT_MS
    begin = clocks.perf_counter()
    try:
        with capi.buffer(asked.SerializeToString()) as unlimited:
            values = on(unlimited, feeds, fetches, targets, metadata, route)
    except errors.OpError:
        if clocks.perf_counter() - begin <= seconds:
            raise
    else:
        if clocks.perf_counter() - begin <= seconds:
            return values
    raise errors.DeadlineExceededError(None, None, _TOO_LONG)
