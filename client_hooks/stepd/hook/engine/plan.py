"""What a strategy means for one graph: which ops move where, which variables move, what has to be copied for it.

Pure. It must not know sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stepd.hook.engine import rules
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.home import allowed
from stepd.hook.engine.home import home as home_of
from stepd.hook.engine.reads import NOTHING, First, possible
from stepd.hook.engine.terms import Orders
from stepd.hook.model import LiveStrategy, NotHonoured
from stepd.hook.order import barriers
from stepd.hook.order.planning import NO_ORDER, OrderPlan
from stepd.hook.rewrite import shared_reads
from stepd.hook.rewrite.chosen import Chosen


@dataclass(frozen=True)
class Plan:
    """`device_of`: ops that leave their home (variables included). `changed`: those, those that are ordered or split, wait for a
    read or for less than before, and everything that needs them."""

    strategy: LiveStrategy
    device_of: Mapping[str, str]
    variables: Mapping[str, str]
    changed: frozenset[str]
    refused: tuple[NotHonoured, ...]
    order: OrderPlan = NO_ORDER
    splits: Mapping[str, Chosen] = field(default_factory=dict)
    reads: frozenset[First] = NOTHING  # before which writes
    sums: Orders = field(default_factory=dict)  # the order in which they add up plainly
    apart: frozenset[str] = frozenset()  # twins that are not made one plainly
    lifts: barriers.Lifts = barriers.NOTHING  # waits of the graph that the copy does without
    shares: shared_reads.Shares = shared_reads.NOTHING  # reads that others make as well

    @property
    def order_said(self) -> str:
        """What is done about order, for the operator."""
        lifted = f"; {len(self.lifts)} waits lifted" if self.lifts else ""
        return self.order.said + lifted + (f"; {len(self.shares)} reads shared" if self.shares else "")

    def seen(self, view: GraphView) -> GraphView:
        """The graph as the copy has it, which waits for less and reads less often."""
        return shared_reads.without(barriers.without(view, self.lifts), self.shares)


def resolve(strategy: LiveStrategy, view: GraphView, classes: Classes, devices: Devices) -> Plan:
    """Keep of a strategy what the graph allows: no pinned op, one device a group, only devices that have the kernel."""
    device_of: dict[str, str] = {}
    refused: list[NotHonoured] = []
    wanted_by_group: dict[int, str] = {}
    for name, device in strategy.placement.items():
        node = view.nodes.get(name)
        if node is None:
            continue
        home = home_of(view, devices, node)
        group = classes.group_of.get(name)
        if group is not None:
            wanted = wanted_by_group.setdefault(group, device)
            if wanted != device:
                refused.append(NotHonoured(name, device, wanted))
        elif name in classes.pinned or device not in allowed(view, devices, node):
            if device != home:
                refused.append(NotHonoured(name, device, home))
        elif device != home:
            device_of[name] = device
    for group, device in wanted_by_group.items():
        refused += _place_group(classes.groups[group], device, device_of, view, classes, devices)
    _constants_follow(view, device_of, devices)
    for name in [name for name, device in device_of.items() if _stays(view, view.nodes[name], device, devices)]:
        del device_of[name]  # others of its group move to it; a variable does not move to where it is
    variables = {name: device for name, device in device_of.items() if view.nodes[name].op in rules.VARIABLES}
    changed = frozenset(view.descendants(device_of))
    return Plan(strategy, device_of, variables, changed, tuple(refused))


def _stays(view: GraphView, node: Node, device: str, devices: Devices) -> bool:
    return node.op in rules.VARIABLES and home_of(view, devices, node) == device


def ordered(plan: Plan, order: OrderPlan, view: GraphView) -> Plan:
    """`plan` with its ops in order."""
    return with_changed(replace(plan, order=order), view)


def reading(plan: Plan, reads: frozenset[First], view: GraphView) -> Plan:
    """`plan` with those of `reads` before their writes that it allows for."""
    return with_changed(replace(plan, reads=possible(plan.seen(view), reads, plan.splits, plan.order.edges)), view)


def split(
    plan: Plan, splits: Mapping[str, Chosen], refused: tuple[NotHonoured, ...], fed: Mapping[str, str], view: GraphView
) -> Plan:
    """`plan` with some of its ops in parts. `fed`: where what they cut comes in."""
    device_of = {**plan.device_of, **fed}
    return with_changed(replace(plan, device_of=device_of, splits=splits, refused=(*plan.refused, *refused)), view)


def summing(plan: Plan, sums: Orders, apart: frozenset[str], view: GraphView) -> Plan:
    """`plan` with the sums that are to add up in a given order, and the twins that stay `apart`. Where nothing moves they do."""
    return with_changed(replace(plan, sums=sums, apart=apart), view) if plan.device_of else plan


def lifting(plan: Plan, lifts: barriers.Lifts, view: GraphView) -> Plan:
    """`plan` without the waits `lifts`. Where nothing moves they cost nothing."""
    return with_changed(replace(plan, lifts=lifts), view) if plan.device_of else plan


def sharing(plan: Plan, shares: shared_reads.Shares) -> Plan:
    """`plan` in which some reads serve others' readers; what is not copied reads for itself."""
    return replace(plan, shares=shares)


def with_changed(plan: Plan, view: GraphView) -> Plan:
    """`plan` with what it changes of the graph as it is now."""
    others = {pair.write for pair in plan.reads} | {lift.op for lift in plan.lifts}
    return replace(
        plan, changed=frozenset(view.descendants([*plan.device_of, *plan.splits, *plan.order.seeds(), *others, *plan.sums]))
    )


def _constants_follow(view: GraphView, device_of: dict[str, str], devices: Devices) -> None:
    """A constant goes where all its readers are, else it stays: Grappler folds constants of one device only."""
    constants = {n for n in device_of if view.nodes[n].op == "Const"}
    constants |= {s for n in device_of for s, k in view.nodes[n].inputs if k >= 0 and view.nodes[s].op == "Const"}
    for name in constants:
        device_of.pop(name, None)
        places = {device_of.get(reader) for reader in view.consumers[name]}
        device = places.pop() if len(places) == 1 else None
        if device is not None and device in allowed(view, devices, view.nodes[name]):
            device_of[name] = device


def _place_group(
    group: tuple[str, ...],
    device: str,
    device_of: dict[str, str],
    view: GraphView,
    classes: Classes,
    devices: Devices,
) -> list[NotHonoured]:
    """Put a whole group on one device, or leave the whole group at home."""
    nodes = [view.nodes[name] for name in group]
    homes = [home_of(view, devices, n) for n in nodes]
    if all(home == device for home in homes):
        return []
    fits = all(n.name not in classes.pinned and device in allowed(view, devices, n) for n in nodes)
    if not fits:
        return [NotHonoured(n.name, device, home) for n, home in zip(nodes, homes, strict=True)]
    device_of.update((name, device) for name in group)
    return []
