"""How the program's runs are made: through the gate, on the route of what is in force, traced where somebody asks, told to the
observer.

A run of which nobody wants to know more than when it was is made the short way (`noted`): on a step of microseconds all else would
be felt. It must not know how copies are made or when one switches.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stepd.hook import clocks
from stepd.hook.collector import pause
from stepd.hook.engine import capi, chaos_switches, error_words, heard, hidden, names, time_limits, worker_words
from stepd.hook.engine.draining import Delivery
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.engine.told import Traced
from stepd.hook.ports import MOST_NOTES, Notes

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

_clock = clocks.perf_counter
_thread = threading.get_ident


class Runs:
    """Runs of one session, on the program's threads."""

    def __init__(self, engine: SessionEngine) -> None:
        self._engine = engine

    def run(self, options: Any, feeds: Any, fetches: list[Any], targets: list[Any], metadata: Any) -> Any:
        """In place of `TF_SessionRun_wrapper`."""
        engine = self._engine
        if pause.off:
            pause.catch_up()
        key = (tuple(fetches), tuple(targets), tuple(feeds))
        kind = engine.kinds.by_handles.get(key) or engine.kinds.make(key)
        seconds = time_limits.of(engine, kind, options) if options is not None or engine.limit_ms else 0.0
        asks = None
        if options is not None or metadata is not None:
            asks, options, metadata = engine.told.asks(options, metadata)
        if asks is None:
            kind.may_be_asked = True
            if (notes := self.let_in(kind)) is not None:
                call = self._call(seconds, options, feeds, fetches, targets, None)
                return self.noted(kind, notes, call, feeds, options)
            traced = engine.told.wants(kind, b"" if options is None else capi.buffer_bytes(options))
        else:
            engine.routing.mind_options(asks)
            traced = engine.told.overhears(kind, asks, options, metadata)
        if traced is not None:
            options, metadata = traced.options, traced.metadata
        call = self._call(seconds, options, feeds, fetches, targets, metadata)
        try:
            return self.guarded(kind, call, metadata, traced, feeds, options)
        finally:
            if traced is not None:
                traced.free()

    def _call(self, seconds: float, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any) -> Callable[..., Any]:
        """A plain run, by its route; `seconds`: its time limit, where the hook minds it."""
        if seconds:
            return functools.partial(time_limits.run, self._engine, seconds, options, feeds, fetches, targets, metadata)
        return functools.partial(self.run_on, options, feeds, fetches, targets, metadata)

    def notes_of(self, kind: Kind) -> Notes | None:
        """Where a run of `kind` may be noted; None where anything is new about it: another strategy, a switch or a trace to make,
        something to learn."""
        engine, strategy, notes = self._engine, self._engine.strategy_id, kind.notes
        plain = (
            notes is not None
            and notes.open
            and kind.ran_on == strategy
            and kind.epoch == engine.routing.epoch
            and (kind.sums_shown or strategy != "")
            and engine.told.awaited is None
            and engine.chaos is None
            and len(notes.ended) < MOST_NOTES
        )
        return notes if plain else None

    def let_in(self, kind: Kind) -> Notes | None:
        """Let a run of `kind` through the gate that may be noted, and was: `noted` comes next. None: nothing was done."""
        notes, engine = self.notes_of(kind), self._engine
        if notes is None or not engine.gate.slip_in(kind):
            return None
        if kind.epoch != engine.routing.epoch:  # a switch came first (`Routing.enter`)
            engine.gate.leave(kind)
            return None
        return notes

    def noted(
        self,
        kind: Kind,
        notes: Notes,
        call: Callable[[Route | None], Any],
        feeds: Any = None,
        options: Any = None,
        called: bool = False,
        values: Sequence[Any] | None = None,
    ) -> Any:
        """A run of `kind` by `call`, which was let in. The rest is as in `guarded`."""
        engine, gate = self._engine, self._engine.gate
        if engine.cluster is not None:
            engine.cluster.follow()
        kind.waited = False
        route, strategy, error = kind.route, engine.strategy_id, ""
        begin, held = _clock(), gate.held
        try:
            result = call(route)
        except BaseException as e:
            error = type(e).__name__
            self._failed(kind, route, e, _fed(kind, feeds, values), called, called)
            raise
        finally:
            seconds = _clock() - begin
            kind.ran(seconds, gate.held - held)
            owed = gate.leave(kind, not error)
            if error or strategy != engine.strategy_id:
                if engine.told.observer is not None:
                    engine.told.ran(kind, strategy, begin, False, error, None, feeds)
            else:
                notes.ended.append((kind.step, begin, seconds, _thread()))
            if isinstance(owed, Delivery):  # of a run that failed, too: plainly it would have waited before that
                owed.deliver(options, begin)
        return result

    def run_on(self, options: Any, feeds: Any, fetches: Any, targets: Any, metadata: Any, route: Route | None) -> Any:
        """A plain run, on a kind's route."""
        raw = self._engine.raw
        if route is None:
            return capi.run_session(raw, options, feeds, fetches, targets, metadata)
        mapped = {route.feeds[t]: value for t, value in feeds.items()}
        if route.built is not None and options is None and metadata is None:
            values = route.built.run(raw, mapped)
            if values is not None:
                return values
        values = capi.run_session(raw, options, mapped, route.fetches, route.targets, metadata)
        if route.built is not None:
            route.built.retire()
        return values

    def guarded(
        self,
        kind: Kind,
        call: Callable[[Route | None], Any],
        metadata: Any = None,
        traced: Traced | None = None,
        feeds: Any = None,
        options: Any = None,
        ready: Callable[[Route | None, int], None] | None = None,
        called: bool = False,
        values: Sequence[Any] | None = None,
    ) -> Any:
        """Run `call` with the kind's route, as one run in flight that the observer hears of. `ready`: as in `Routing.enter`; given
        where a callable of the session is run. `called`: does the program run one? `values`: what it gives
        that one, in the order of its feeds."""
        engine = self._engine
        if engine.cluster is not None:
            engine.cluster.follow()
        switched = engine.chaos is not None and chaos_switches.switch(engine, engine.chaos, kind)
        begin = _clock()
        held = engine.gate.held
        route = engine.routing.enter(kind, ready)
        strategy, error = engine.strategy_id, ""
        engine.ran = True
        try:
            result = call(route)
            kind.ended_well = True
        except BaseException as e:
            error = type(e).__name__
            if traced is not None and traced.reports:
                error_words.tell_untraced(e)
            self._failed(kind, route, e, _fed(kind, feeds, values), called, ready is not None)
            raise
        finally:
            kind.ran(_clock() - begin, engine.gate.held - held)  # counted while it is in flight: restarts go by the count
            owed = engine.gate.leave(kind, not error)
            if metadata is not None and (route is not None or traced is not None):
                engine.told.use_metadata(kind, metadata, traced, error)
            if engine.told.observer is not None:
                engine.told.ran(kind, strategy, begin, switched, error, traced, feeds)
            if isinstance(owed, Delivery):
                owed.deliver(options, begin)
        return result

    def _failed(self, kind: Kind, route: Route | None, error: BaseException, feeds: Any, called: bool, by_callable: bool) -> None:
        engine = self._engine
        engine.kinds.uncertain.add(kind.step)
        if route is not None and feeds is not None:
            hidden.tell(engine, kind, route, feeds, error)
            heard.tell(engine, kind, feeds, error)
        if route is not None or engine.cluster is not None:
            reader = functools.partial(error_words.reader, engine, kind, called)
            waits = functools.partial(error_words.waits, engine, kind)
            names.repair_error(error, engine.routing.user_names(), engine.cluster, reader, waits)
        if route is not None:
            hidden.name_caller(engine, kind, error)
        error_words.number_ends(error, kind, route, called, by_callable)
        error_words.number_bodies(engine, error, kind)
        if engine.cluster is not None:
            worker_words.tell_plainly(error, kind.step)


def _fed(kind: Kind, feeds: Any, values: Sequence[Any] | None) -> Any:
    """What a run was fed, by feed; None where that is not known."""
    if feeds is not None or values is None or len(values) != len(kind.feeds):
        return feeds
    return dict(zip(kind.feeds, values, strict=True))
