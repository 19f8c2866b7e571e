"""Switches one session between representations of its graph: the user's own nodes, or a copy under a strategy.

Holds what is in force, and prepares what is to be; what of the graph may move is `sight`'s, what a strategy comes to `making`'s.
It must not know the observer, statistics or how switches are asked for.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from stepd.hook import clocks
from stepd.hook.engine import capi, edits, names, op_defs
from stepd.hook.engine.ahead import Ahead
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.copies import Copy
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.gate import Gate
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.growth import Growth
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.kinds import Kind, Route, patience
from stepd.hook.engine.last_reads import LastReads, concerns
from stepd.hook.engine.likeness import Likeness
from stepd.hook.engine.making import Making
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.refusals import AtHomeError, NotQuietError, SwitchRefusedError
from stepd.hook.engine.sight import Sight
from stepd.hook.engine.valued import Valued
from stepd.hook.model import LiveStrategy
from stepd.hook.order.steps import left_open

Building = Callable[[Ahead, Callable[[], Any]], Any]


class Switcher:
    """The representations of one session's graph. Every method but `prepare` and `ready` is called with the lock held."""

    def __init__(self, mirror: Mirror, devices: Devices, shared_variables: bool, ahead: Ahead, most_copies: int) -> None:
        self.mirror = mirror
        self.devices = devices
        self.sight = Sight(mirror, shared_variables, devices)
        self.live: Copy | None = None
        self.homes = Homes(mirror)
        self.growth = Growth()
        self._on_switch: Callable[[], None] = lambda: None
        # Guards the mirror's graph and what the session has of it; has executors built while the session is there.
        self.lock: Any = threading.RLock()
        self.build: Building = _at_once
        self.build_callables: Callable[[Any, Kind, Route], None] = lambda *_: None
        self.ahead = ahead
        # Of kinds that were prepared for, on the program's own placement.
        self.own_routes: dict[Kind, Route] = {}
        # No method of this object: what it has would wait for the next time at which Python looks for cycles.
        self.new_prefix: Callable[[], str] = functools.partial(_new_prefix, itertools.count(1))
        self.last_reads = LastReads(mirror, self.new_prefix)
        self.likeness: Likeness | None = None  # where it is told how its steps compute
        self.valued: Valued | None = None  # where it is told which variables have values
        self.making = Making(mirror, devices, self.sight, self.homes, self.new_prefix, most_copies)

    def attach(self, on_switch: Callable[[], None], lock: Any, build_in: Building) -> None:
        """From here on this is the switcher of a session that runs. `on_switch` is called when something else is in force."""
        self._on_switch, self.lock, self.build = on_switch, lock, build_in

    def retire(self) -> None:
        """This session is over: what it had goes at once, not when Python next looks for cycles."""
        self.making.kept, self.live, self.own_routes = {}, None, {}

    # -- the graph as it is now ---------------------------------------------------------------------------------------

    def view(self) -> GraphView:
        """The graph, by the user's names."""
        return self.sight.view()

    def classes(self) -> Classes:
        """What of it may move."""
        return self.sight.classes()

    def units(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """What may move: (ops that move together, devices on which all of them may run)."""
        return self.sight.units(self.devices)

    # -- preparing and switching ---------------------------------------------------------------------------------------

    def prepare(
        self, session: Any, strategy: LiveStrategy, kinds: Collection[Kind], calm: Callable[[], None] = lambda: None
    ) -> Copy:
        """A copy that serves `kinds`, imported, placed and built. Raises SwitchRefusedError.

        `calm` is called before each piece of work that TensorFlow lets no run of the session begin beside; the lock is free then,
        unless the caller holds it, and while TensorFlow builds.
        """
        with self.lock:
            if self.valued is not None:  # a step that would fail of one without waits until it is due
                kinds = [kind for kind in kinds if not self.valued.lacking(self.view(), kind)]
            copy = self.making.copy(strategy, kinds)
        calm()
        with self.lock:
            if copy.is_stale():
                copy = self.making.copy(strategy, kinds)
            new = self.homes.prepare(self.view(), self.homes.to_move(copy.plan.variables), self.new_prefix())
            by_copy: dict[Copy, list[Kind]] = {copy: []}
            for kind in kinds:
                by_copy.setdefault(copy.serving(kind, self.view()), []).append(kind)
            for one, served in by_copy.items():
                new += one.grow(self.view(), served)
            self._extend(session, new)
            serving = {kind: one for one, served in by_copy.items() for kind in served if not kind.in_parts}
            routes = {kind: self._on(session, one, kind) for kind, one in serving.items()}
            view, graph = self.view(), self._graph() if routes else b""
        for kind in routes:
            self._compare(serving[kind], kind, routes[kind], view, lambda: graph)
            calm()
            routes[kind] = self._built(kind, routes[kind])
        copy.routes.update(routes)
        return copy

    def prepare_own(self, kinds: Iterable[Kind]) -> None:
        """Have built what `kinds` need on the program's own placement, in a session that nobody uses yet."""
        plain = self.making.plain()
        for kind in kinds:
            route = None if kind.in_parts else self._built(kind, self._on(self.ahead.session, plain, kind))
            if route is not None and route.built is not None:
                self.own_routes[kind] = route

    def _built(self, kind: Kind, route: Route) -> Route:
        self.build(self.ahead, functools.partial(self.build_callables, self.ahead.session, kind, route))
        build = functools.partial(self.ahead.build, list(route.feeds.values()), route.fetches, route.targets)
        return route._replace(built=self.build(self.ahead, build))

    def build_moves(self, copy: Copy, calm: Callable[[], None]) -> None:
        """Have built what carries the variables to where `copy` wants them, and what carries them home from there."""
        with self.lock:
            moves = self.homes.to_move(copy.plan.variables)
        if moves:
            calm()
            self.build(self.ahead, functools.partial(self.homes.build, self.ahead, moves))

    def _extend(self, session: Any, new: Sequence[Any]) -> None:
        """Send what was added to the session. What it cannot place would poison it for good: such nodes lose their device."""
        try:
            capi.extend_session(session)
        except Exception as e:
            for operation in new:
                edits.clear_device(self.mirror.graph, operation)
            self.making.kept = {id_: copy for id_, copy in self.making.kept.items() if copy is self.live}
            capi.extend_session(session)
            raise SwitchRefusedError(f"TensorFlow cannot place the copy: {e}") from e

    def switch(self, session: Any, copy: Copy | None, gate: Gate[Kind], seconds: float) -> float:
        """Put `copy` in force (None: the user's own nodes), variables included; returns the seconds that runs were held back.

        Raises SwitchRefusedError; the session is then as before.

        Runs that touch no variable that moves are not held back; they keep the representation they began with.
        """
        moves = self.homes.to_move(copy.plan.variables if copy else {})
        if not moves:
            self._put(copy)
            return 0.0
        new = self.homes.prepare(self.view(), moves, self.new_prefix())
        if new:
            self._extend(session, new)
        touched = self.view().descendants(moves)
        began = clocks.monotonic()

        def concerns(kind: Kind) -> bool:
            return not kind.ops().isdisjoint(touched)

        with gate.hold(concerns, patience(gate.in_flight(concerns), seconds)) as quiet:
            if not quiet:
                # Those that are away from home already have nowhere to stay but where they are.
                self.sight.note_busy(gate.in_flight(concerns), moves.keys() - self.homes.at.keys())
                raise NotQuietError(f"a run that uses variables that move ({next(iter(moves))}, ...) does not end")
            left = self.homes.move(self.ahead, moves)
            self._put(copy)
        waited = clocks.monotonic() - began
        self.homes.free(self.ahead, left)
        return waited

    def learn(self, kinds: Iterable[Kind]) -> bool:
        """Leave from now on what these kinds read and write without order where it is; True when some of it is elsewhere."""
        new = self.sight.learn(kinds)
        return self.live is not None and not self.live.plan.device_of.keys().isdisjoint(new)

    def renew(self, session: Any, kind: Kind, gate: Gate[Kind], seconds: float) -> None:
        """The graph grew so that the copy in force contradicts it: make another, or go back to the user's nodes."""
        assert self.live is not None
        strategy = self.live.plan.strategy
        self.switch(session, self.prepare(session, strategy, [kind]), gate, seconds)

    def keep_on(self, session: Any, kind: Kind) -> Route:
        """The graph grew so that the copy in force contradicts it, and runs in flight let no variable move: from here on the copy
        serves what was added as well, as it is."""
        assert self.live is not None
        self.live.keep_on(self.view())
        return self._served(session, self.live, kind)

    def _put(self, copy: Copy | None) -> None:
        self.live = copy
        self.growth.begin()
        self._on_switch()

    # -- routing ------------------------------------------------------------------------------------------------------

    def ready(self, kind: Kind) -> Route | None:
        """The route of a kind that was prepared for the copy in force. Needs no lock: what is in force changes before the epoch."""
        live = self.live
        return None if kind.in_parts else (self.own_routes if live is None else live.routes).get(kind)

    def route(self, session: Any, kind: Kind) -> Route | None:
        """How to run `kind` now; copies more of the graph when the kind needs it."""
        plain = self.live is None and not self.mirror.aliases and not concerns(self.mirror, kind)
        return None if plain else self._routed(session, kind)

    def _routed(self, session: Any, kind: Kind) -> Route | None:
        copy = self.live or self.making.plain()
        if self.live is not None:
            if copy.is_stale():
                self._adopt(copy)
            if self.learn([kind]):
                raise SwitchRefusedError("a step shows that a variable is to stay where it is")
            self.making.check_known(kind)
            self._check_values(kind)
            return self._served(session, copy, kind)
        return self._on(session, copy, kind)

    def _adopt(self, copy: Copy) -> None:
        if why := self.growth.too_much():
            raise AtHomeError(why)
        began = clocks.monotonic()
        self.making.adopt(copy)
        self.growth.took(clocks.monotonic() - began)

    def _check_values(self, kind: Kind) -> None:
        """Raise AtHomeError where a run of `kind` would fail of a variable."""
        if self.valued is None or not (unsure := self.valued.lacking(self.view(), kind)):
            return
        self.valued.found(there := self.homes.with_values(self.ahead, self.view(), unsure, self.new_prefix()))
        if empty := [name for name in unsure if name not in there]:
            raise AtHomeError(f"variable {empty[0]} has no value, and a step that is due reads it")

    def _served(self, session: Any, copy: Copy, kind: Kind) -> Route:
        copy = copy.serving(kind, self.view())
        new = copy.grow(self.view(), [kind])
        if new:
            self._extend(session, new)
        route = self._on(session, copy, kind)
        if not kind.in_parts:
            self._compare(copy, kind, route, self.view(), self._graph)
        return route

    def _graph(self) -> bytes:
        """The session's graph, for `_compare`."""
        return b"" if self.likeness is None else capi.graph_handle_bytes(self.mirror.graph.handle)

    def _compare(self, copy: Copy, kind: Kind, route: Route, view: GraphView, graph: Callable[[], bytes]) -> None:
        """Raise where a step on `copy` computes something else than plainly. Parts of what is split do, as the operator allowed."""
        if self.likeness is None or copy.plan.splits or not copy.serves(kind):
            return
        if unsure := [name for name in left_open(view, kind.step) if not op_defs.is_pure(view.nodes[name].op)]:
            raise SwitchRefusedError(f"a step feeds what it waits for, and whether {min(unsure)} runs then is Grappler's choice")
        if kind.step not in copy.unlike:
            aliases = {name: here for name, (here, _) in self.mirror.aliases.items()}
            copy.unlike[kind.step] = self.likeness.difference(
                view, self.mirror.version, kind, route, copy.made(view), graph(), aliases
            )
        if op := copy.unlike[kind.step]:
            raise SwitchRefusedError(f"Grappler would have {op} computed otherwise there, in last bits perhaps")

    def _on(self, session: Any, copy: Copy, kind: Kind) -> Route:
        """The route of `kind` on a copy that has all that it needs."""
        new = self.last_reads.grow(kind, self.view(), copy) if concerns(self.mirror, kind) else []
        if new:
            self._extend(session, new)
        return self.last_reads.routed(kind, self.view(), copy, copy.route(kind))

    def last_names(self, kind: Kind) -> dict[str, str]:
        """Of what a run of `kind` was routed to fetch last: the fetch -> what it is in the mirror."""
        copy = self.live or self.making.plain()
        return dict(self.last_reads.names(kind, self.view(), copy.serving(kind, self.view())))


def _at_once(ahead: Ahead, work: Callable[[], Any]) -> Any:
    return work()


def _new_prefix(numbers: Iterator[int]) -> str:
    return names.prefix(next(number for number in numbers if names.is_free(number)))
