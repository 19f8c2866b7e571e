"""Switches one session between representations of its graph: the user's own nodes, or a copy under a strategy.

Holds what is prepared and what is in force; what of the graph may move is `sight`'s. It must not know the observer, statistics
or how switches are asked for.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from stepd.hook import clocks
from stepd.hook.engine import capi, names
from stepd.hook.engine.ahead import Ahead
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.copies import Copy
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.gate import Gate
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.kinds import Kind, Route, patience
from stepd.hook.engine.last_reads import LastReads, concerns
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.plan import Plan, lifting, ordered, reading, resolve, sharing, split, summing
from stepd.hook.engine.reads import common
from stepd.hook.engine.refusals import NotQuietError, SwitchRefusedError
from stepd.hook.engine.sight import Sight
from stepd.hook.engine.splitting import Splitting
from stepd.hook.engine.terms import Known
from stepd.hook.model import LiveStrategy
from stepd.hook.order import barriers
from stepd.hook.order.planning import Ordering
from stepd.hook.ports import StepKind

Building = Callable[[Ahead, Callable[[], Any]], Any]
NO_PLAN = Plan(LiveStrategy("", {}), {}, {}, frozenset(), ())


class Switcher:
    """The representations of one session's graph. Every method but `prepare` and `ready` is called with the lock held."""

    def __init__(self, mirror: Mirror, devices: Devices, shared_variables: bool, ahead: Ahead, most_copies: int) -> None:
        self.mirror = mirror
        self.devices = devices
        self.sight = Sight(mirror, shared_variables, devices)
        self.live: Copy | None = None
        self.homes = Homes(mirror)
        self._on_switch: Callable[[], None] = lambda: None
        # Guards the mirror's graph and what the session has of it; has executors built while the session is there.
        self.lock: Any = threading.RLock()
        self.build: Building = _at_once
        self.kept: dict[str, Copy] = {}
        self.ordering = Ordering()
        self.splitting = Splitting(mirror)
        self.known = Known()  # of how the program's own graph adds up
        self.build_callables: Callable[[Any, Kind, Route], None] = lambda *_: None
        self.other_kinds: Callable[[], Sequence[Kind]] = tuple  # nobody prepares for these, but an order must not disturb them
        self.made = 0
        self._most_copies = most_copies
        self.ahead = ahead
        # Of kinds that were prepared for, on the program's own placement.
        self.own_routes: dict[Kind, Route] = {}
        # No method of this object: what it has would wait for the next time at which Python looks for cycles.
        self.new_prefix: Callable[[], str] = functools.partial(_new_prefix, itertools.count(1))
        self.last_reads = LastReads(mirror, self.new_prefix)

    def attach(self, on_switch: Callable[[], None], lock: Any, build_in: Building) -> None:
        """From here on this is the switcher of a session that runs. `on_switch` is called when something else is in force."""
        self._on_switch, self.lock, self.build = on_switch, lock, build_in

    def retire(self) -> None:
        """This session is over: what it had goes at once, not when Python next looks for cycles."""
        self.kept, self.live, self.own_routes = {}, None, {}

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

    def lifts(self, steps: Iterable[StepKind]) -> barriers.Lifts:
        """Waits that a copy for `steps` does without; for none: what any copy may do without."""
        return self.sight.lifts(dict.fromkeys(steps).keys()) if self.ordering.lifts else barriers.NOTHING

    def resolve(self, strategy: LiveStrategy) -> Plan:
        plan = resolve(strategy, self.view(), self.classes(), self.devices)
        held = self.classes().held
        unsure = {name: chains for name, chains in self.sight.uncertain().items() if name not in held}
        orders = self.known.orders(self.view(), unsure)
        plan = summing(plan, orders, self.known.apart(self.view(), unsure), self.view())
        splits, refused = self.splitting.resolve(strategy, self.view(), self.classes(), self.devices)
        fed = self.splitting.fed_apart(splits, self.view(), self.classes())
        plan = split(plan, splits, refused, fed, self.view()) if splits or refused else plan
        # At last, since they count for what moves, and what is fed apart does.
        return sharing(lifting(plan, self.lifts(()), self.view()), self.sight.shares(()))

    # -- preparing and switching ---------------------------------------------------------------------------------------

    def prepare(
        self, session: Any, strategy: LiveStrategy, kinds: Collection[Kind], calm: Callable[[], None] = lambda: None
    ) -> Copy:
        """A copy that serves `kinds`, imported, placed and built. Raises SwitchRefusedError.

        `calm` is called before each piece of work that TensorFlow lets no run of the session begin beside; the lock is free then,
        unless the caller holds it, and while TensorFlow builds.
        """
        with self.lock:
            copy = self._copy(strategy, kinds)
        calm()
        with self.lock:
            if copy.is_stale():
                copy = self._copy(strategy, kinds)
            new = self.homes.prepare(self.view(), self.homes.to_move(copy.plan.variables), self.new_prefix())
            by_copy: dict[Copy, list[Kind]] = {copy: []}
            for kind in kinds:
                by_copy.setdefault(copy.serving(kind, self.view()), []).append(kind)
            for serving, served in by_copy.items():
                new += serving.grow(self.view(), served)
            self._extend(session, new)
            routes = {k: self._on(session, serving, k) for serving, served in by_copy.items() for k in served if not k.in_parts}
        for kind in routes:
            calm()
            routes[kind] = self._built(kind, routes[kind])
        copy.routes.update(routes)
        return copy

    def prepare_own(self, kinds: Iterable[Kind]) -> None:
        """Have built what `kinds` need on the program's own placement, in a session that nobody uses yet."""
        plain = Copy(NO_PLAN, self.mirror, self.homes, self.new_prefix)
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

    def _copy(self, strategy: LiveStrategy, kinds: Collection[Kind]) -> Copy:
        """The copy that was made for this strategy before, while it fits the graph; else a new one."""
        self._check_apart()
        self.learn(kinds)
        for kind in kinds:
            self._check_known(kind)
        plan = self.resolve(strategy)
        kept = self.kept.get(strategy.id)
        if kept is not None and kept.adopt(plan, self.view(), self.classes()):
            return kept
        if self.made >= self._most_copies:
            raise SwitchRefusedError(
                f"{self.made} copies of the graph are in the session already (STEPD_MAX_COPIES={self._most_copies}); "
                "only a restart of the session can free them"
            )
        self.made += 1
        steps = [kind.step for kind in (*kinds, *self.other_kinds()) if not kind.in_parts]
        plan = sharing(lifting(plan, self.lifts(steps), self.view()), self.sight.shares(steps))
        seen = plan.seen(self.view())
        order = self.ordering.plan(strategy, seen, self.classes(), self.devices, plan.device_of, steps, plan.splits)
        reads = common(self.view(), {kind.step: self.sight.first_reads(kind) for kind in kinds})
        plan = reading(ordered(plan, order, self.view()), reads, self.view())
        seeing = self.splitting.facts, self.sight.first_reads, self.sight.settled
        copy = Copy(plan, self.mirror, self.homes, self.new_prefix, self.devices, *seeing, self.ordering.tables)
        self.kept[strategy.id] = copy
        return copy

    def _check_apart(self) -> None:
        if self.classes().apart:
            raise SwitchRefusedError(self.classes().apart)

    def _check_known(self, kind: Kind) -> None:
        """Raise SwitchRefusedError where a step must first show how it adds up; one that has run and cannot be asked need not. Or
        where one copy could not add up as all steps do."""
        known = self.view(), self.sight.uncertain()
        if name := self.known.differing(known[0], kind.ops(), known[1]):
            raise SwitchRefusedError(f"the steps add up the sum {name} in different orders")
        if kind.in_parts or kind.sums_shown or (kind.runs and not kind.may_be_asked):
            return
        name = self.known.lacking(known[0], kind.step, kind.ops(), known[1])
        if name:
            raise SwitchRefusedError(f"a step that has not run plainly yet needs the sum {name}, whose order is not known before")

    def _extend(self, session: Any, new: Sequence[Any]) -> None:
        """Send what was added to the session. What it cannot place would poison it for good: such nodes lose their device."""
        try:
            capi.extend_session(session)
        except Exception as e:
            for operation in new:
                capi.clear_device(self.mirror.graph, operation)
            self.kept = {id_: copy for id_, copy in self.kept.items() if copy is self.live}
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
        copy = self.live or Copy(NO_PLAN, self.mirror, self.homes, self.new_prefix)
        if self.live is not None:
            if copy.is_stale():
                self._adopt_extended_graph(copy)
            if self.learn([kind]):
                raise SwitchRefusedError("a step reads and writes a variable without order, which is to stay where it is")
            self._check_known(kind)
            return self._served(session, copy, kind)
        return self._on(session, copy, kind)

    def _served(self, session: Any, copy: Copy, kind: Kind) -> Route:
        copy = copy.serving(kind, self.view())
        new = copy.grow(self.view(), [kind])
        if new:
            self._extend(session, new)
        return self._on(session, copy, kind)

    def _on(self, session: Any, copy: Copy, kind: Kind) -> Route:
        """The route of `kind` on a copy that has all that it needs."""
        new = self.last_reads.grow(kind, self.view(), copy) if concerns(self.mirror, kind) else []
        if new:
            self._extend(session, new)
        return self.last_reads.routed(kind, self.view(), copy, copy.route(kind))

    def last_names(self, kind: Kind) -> dict[str, str]:
        """Of what a run of `kind` was routed to fetch last: the fetch -> what it is in the mirror."""
        copy = self.live or Copy(NO_PLAN, self.mirror, self.homes, self.new_prefix)
        return dict(self.last_reads.names(kind, self.view(), copy.serving(kind, self.view())))

    def _adopt_extended_graph(self, copy: Copy) -> None:
        self._check_apart()
        if not copy.adopt(self.resolve(copy.plan.strategy), self.view(), self.classes()):
            raise SwitchRefusedError("ops that the program added since need the original of what was copied")


def _at_once(ahead: Ahead, work: Callable[[], Any]) -> Any:
    return work()


def _new_prefix(numbers: Iterator[int]) -> str:
    return names.prefix(next(number for number in numbers if names.is_free(number)))
