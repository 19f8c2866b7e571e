"""Makes copies of the graph for strategies, and keeps them: what a strategy comes to on the graph as it is now.

It must not know what is in force, nor how a copy gets into the session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from stepd.hook.engine.copies import Copy
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.plan import Plan, lifting, ordered, reading, resolve, sharing, split, summing
from stepd.hook.engine.reads import common
from stepd.hook.engine.refusals import SwitchRefusedError
from stepd.hook.engine.sight import Sight
from stepd.hook.engine.splitting import Splitting
from stepd.hook.engine.terms import Known
from stepd.hook.model import LiveStrategy
from stepd.hook.order import barriers
from stepd.hook.order.planning import Ordering
from stepd.hook.ports import StepKind

NO_PLAN = Plan(LiveStrategy("", {}), {}, {}, frozenset(), ())


class Making:
    """The copies of one session's graph, `kept` by strategy. Raises SwitchRefusedError where there can be none."""

    def __init__(
        self, mirror: Mirror, devices: Devices, sight: Sight, homes: Homes, new_prefix: Callable[[], str], most: int
    ) -> None:
        """`most`: copies that the session may take in, ever."""
        self._mirror = mirror
        self._devices = devices
        self._sight = sight
        self._homes = homes
        self._new_prefix = new_prefix
        self.most = most
        self.made = 0
        self.kept: dict[str, Copy] = {}
        self.ordering = Ordering()
        self.splitting = Splitting(mirror)
        self.known = Known()  # of how the program's own graph adds up
        self.other_kinds: Callable[[], Sequence[Kind]] = tuple  # nobody prepares for these, but an order must not disturb them

    def plain(self) -> Copy:
        """The program's own placement, as a copy that copies nothing."""
        return Copy(NO_PLAN, self._mirror, self._homes, self._new_prefix)

    def lifts(self, steps: Iterable[StepKind]) -> barriers.Lifts:
        """Waits that a copy for `steps` does without; for none: what any copy may do without."""
        return self._sight.lifts(dict.fromkeys(steps).keys()) if self.ordering.lifts else barriers.NOTHING

    def resolve(self, strategy: LiveStrategy) -> Plan:
        """What the strategy comes to, whatever the steps."""
        view, classes = self._sight.view(), self._sight.classes()
        plan = resolve(strategy, view, classes, self._devices)
        unsure = {name: chains for name, chains in self._sight.uncertain().items() if name not in classes.held}
        plan = summing(plan, self.known.orders(view, unsure), self.known.apart(view, unsure), view)
        splits, refused = self.splitting.resolve(strategy, view, classes, self._devices)
        fed = self.splitting.fed_apart(splits, view, classes)
        plan = split(plan, splits, refused, fed, view) if splits or refused else plan
        # At last, since they count for what moves, and what is fed apart does.
        return sharing(lifting(plan, self.lifts(()), view), self._sight.shares(()))

    def copy(self, strategy: LiveStrategy, kinds: Collection[Kind]) -> Copy:
        """The copy that was made for this strategy before, while it fits the graph; else a new one, not in the session yet."""
        self.check_apart()
        self._sight.learn(kinds)
        for kind in kinds:
            self.check_known(kind)
        plan, view, classes = self.resolve(strategy), self._sight.view(), self._sight.classes()
        kept = self.kept.get(strategy.id)
        if kept is not None and kept.adopt(plan, view, classes):
            return kept
        if self.made >= self.most:
            raise SwitchRefusedError(
                f"{self.made} copies of the graph are in the session already (STEPD_MAX_COPIES={self.most}); "
                "only a restart of the session can free them"
            )
        self.made += 1
        steps = [kind.step for kind in (*kinds, *self.other_kinds()) if not kind.in_parts]
        plan = sharing(lifting(plan, self.lifts(steps), view), self._sight.shares(steps))
        order = self.ordering.plan(strategy, plan.seen(view), classes, self._devices, plan.device_of, steps, plan.splits)
        reads = common(view, {kind.step: self._sight.first_reads(kind) for kind in kinds})
        plan = reading(ordered(plan, order, view), reads, view)
        seeing = self.splitting.facts, self._sight.first_reads, self._sight.settled
        made = Copy(plan, self._mirror, self._homes, self._new_prefix, self._devices, *seeing, self.ordering.tables)
        self.kept[strategy.id] = made
        return made

    def adopt(self, copy: Copy) -> None:
        """Have `copy` fit the graph as it is now, which the program has extended."""
        self.check_apart()
        if not copy.adopt(self.resolve(copy.plan.strategy), self._sight.view(), self._sight.classes()):
            raise SwitchRefusedError("ops that the program added since need the original of what was copied")

    def check_apart(self) -> None:
        """Raise where the graph is to be left alone."""
        if apart := self._sight.classes().apart:
            raise SwitchRefusedError(apart)

    def check_known(self, kind: Kind) -> None:
        """Raise where a step must first show how it adds up; one that has run and cannot be asked need not, but for a partial run,
        of which nobody ever is told. Or where one copy could not add up as all steps do."""
        view, unsure = self._sight.view(), self._sight.uncertain()
        if name := self.known.differing(view, kind.ops(), unsure):
            raise SwitchRefusedError(f"the steps add up the sum {name} in different orders")
        if kind.sums_shown or (kind.runs and not kind.may_be_asked and not kind.in_parts):
            return
        name = self.known.lacking(view, kind.step, kind.ops(), unsure)
        if name:
            raise SwitchRefusedError(f"a step that has not run plainly yet needs the sum {name}, whose order is not known before")
