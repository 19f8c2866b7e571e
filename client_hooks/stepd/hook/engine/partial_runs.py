"""Partial runs of a session, open across switches: the variables that an open one uses do not move. They decide nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import errors

from stepd.hook.engine import capi, error_words, names
from stepd.hook.engine.kinds import Kind, Route

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

# What a partial run says that asks for what it cannot have. It goes on with what it is asked for next.
_NOTHING_RAN = (
    "was not specified in partial_run_setup",
    "can't be computed from the feeds",
    "has already been fed",
    "has already been fetched",
)


@dataclass
class _Partial:
    handle: Any  # the raw session's
    kind: Kind
    route: Route | None
    feeds: dict[Any, Any]
    fetches: dict[Any, Any]
    left: set[Any]


class PartialRuns:
    """Open partial runs of one session; an open one counts as a run in flight, so that the variables it uses do not move."""

    def __init__(self, engine: SessionEngine) -> None:
        self._engine = engine
        self._open: dict[str, _Partial] = {}  # by the handles that the program has
        self._made = 0
        self._known = set[str]()  # what was set up

    def setup(self, feeds: list[Any], fetches: list[Any], targets: list[Any]) -> Any:
        """In place of TF_SessionPRunSetup_wrapper."""
        engine = self._engine
        kind = engine.kinds.get((tuple(fetches), tuple(targets), tuple(feeds)))
        engine.kinds.uncertain.add(kind.step)
        engine.ran = True
        if not kind.in_parts:
            kind.in_parts, kind.epoch = True, -1
        route = engine.routing.enter(kind)
        there = feeds, fetches, targets
        if route is not None:
            there = list(route.feeds.values()), route.fetches, route.targets
        try:
            raw = capi.prun_setup(engine.raw, *there)
        except BaseException as e:
            engine.gate.leave(kind)
            self._repair(e, route)
            raise
        finally:
            handle = self._handle(feeds, fetches, targets)
        where = dict(zip(fetches, there[1], strict=True))
        self._open[handle] = _Partial(raw, kind, route, route.feeds if route is not None else {}, where, set(fetches))
        return handle

    def _handle(self, feeds: list[Any], fetches: list[Any], targets: list[Any]) -> str:
        """What a plain session would call its next partial run: a number, and in a direct session what it is of, in the order of
        names the first time."""
        number, self._made = self._made, self._made + 1
        if self._engine.target:
            return str(number)
        parts = [[*map(capi.output_name, feeds)], [*map(capi.output_name, fetches)], [*map(capi.op_name, targets)]]
        given, by_name = (_text(order) for order in (parts, [sorted(part) for part in parts]))
        text = given if given in self._known else by_name
        self._known |= {given, by_name}
        return f"{text};{number}"

    def run(self, handle: Any, feeds: dict[Any, Any], fetches: list[Any]) -> Any:
        """In place of TF_SessionPRun_wrapper."""
        engine, known = self._engine, self._open.get(handle)
        if engine.cluster is not None:
            engine.cluster.follow()
        if known is None:
            if any(handle == partial.handle for partial in self._open.values()):
                handle = ""  # of one that has ended, and the raw session's of another
            try:
                return capi.prun_session(engine.raw, handle, feeds, fetches)
            except BaseException as e:
                self._repair(e, None)
                raise
        done = False
        try:
            mapped = {known.feeds.get(t, t): value for t, value in feeds.items()}
            result = capi.prun_session(engine.raw, known.handle, mapped, [known.fetches.get(t, t) for t in fetches])
            known.left.difference_update(fetches)
            done = not known.left
            return result
        except BaseException as e:
            if not isinstance(e, errors.OpError):  # a signal handler's: whether TensorFlow ran anything is not known
                known.left.add(None)
            done = isinstance(e, errors.OpError) and not any(words in str(e) for words in _NOTHING_RAN)
            if done:  # TensorFlow ends no other run of the session well from here on; in a new one it would
                engine.bound = engine.bound or "a partial run failed, which may have broken the session, plainly too"
            self._repair(e, known.route)
            error_words.number_bodies(engine, e, known.kind)
            raise
        finally:
            if done and self._open.pop(handle, None) is not None:
                engine.gate.leave(known.kind)

    def _repair(self, error: BaseException, route: Route | None) -> None:
        engine = self._engine
        if route is not None or engine.cluster is not None:
            names.repair_error(error, engine.routing.user_names(), engine.cluster)


def _text(parts: list[list[str]]) -> str:
    """As `DirectSession::GetOrCreateExecutors` has it, of a partial run."""
    feeds, fetches, targets = (",".join(part) for part in parts)
    return f"{feeds}->{fetches}/{targets}/1/"
