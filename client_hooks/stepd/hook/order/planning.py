"""How a session enforces the order of a strategy: which way, by which edges, and what is said of it. Pure.

It must not know how copies are made or switched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stepd.hook.engine import rules
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.home import home as home_of
from stepd.hook.engine.op_defs import is_stateful
from stepd.hook.model import LiveStrategy, Order
from stepd.hook.order.edges import COSTLY_SECONDS, Edge, Wanted, order_edges
from stepd.hook.order.native import library
from stepd.hook.order.native.library import Tables
from stepd.hook.order.part_edges import part_edges
from stepd.hook.order.schedule import Pool
from stepd.hook.ports import StepKind
from stepd.hook.rewrite.chosen import Chosen


@dataclass(frozen=True)
class OrderPlan:
    """`edges`: of `control`. `priority`: of `native`, by the user's op. `said`: for the operator."""

    way: Order = Order.NONE
    edges: tuple[Edge, ...] = ()
    priority: Mapping[str, int] = field(default_factory=dict)
    said: str = "none"

    def seeds(self) -> set[str]:
        """Ops that must be in the copy for this."""
        ends = {name for edge in self.edges for name in (edge.before, edge.after, edge.tie.signal, edge.tie.held)}
        return ends | self.priority.keys()


NO_ORDER = OrderPlan()


@dataclass(frozen=True)
class Ordering:
    """What a session can do about order. `pools`: by device; a device that is not in it is left alone.

    `native`: "" when this session runs on the native executor, else why it does not. `workers`: the tables by which local workers
    keep an order, where they do; else this process's own are meant.
    """

    setting: Order = Order.AUTO
    pools: Mapping[str, Pool] = field(default_factory=dict)
    native: str = "not available"
    workers: Tables | None = None

    @property
    def tables(self) -> Tables:
        """Where the native executor finds priorities."""
        return library if self.workers is None else self.workers

    @property
    def keeps(self) -> bool:
        """Whether each device runs one op after the other, as the order says, and not nearly so."""
        return self.workers is not None and not self.native

    @property
    def lifts(self) -> bool:
        """Whether the graph's own waits may be lifted (`barriers`)."""
        return self.setting is not Order.NONE

    def plan(
        self,
        strategy: LiveStrategy,
        view: GraphView,
        classes: Classes,
        devices: Devices,
        moved: Mapping[str, str],
        kinds: Iterable[StepKind],
        splits: Mapping[str, Chosen],
    ) -> OrderPlan:
        """How the order of `strategy` is enforced in steps of `kinds`. `moved`: ops that the strategy puts elsewhere; `splits`:
        those that run in parts."""
        way, why = choose(self.setting, strategy, self.native)
        if way is Order.NONE:
            return OrderPlan(said=f"none: {why}")
        if way is Order.NATIVE:
            if not self.keeps and not _pays(strategy.seconds.values()):
                return OrderPlan(said="none: most of a step's time goes to ops too short for an order")
            known = {n: p for n, p in strategy.priority.items() if n in view.nodes and _sorted(view, classes, n)}
            return OrderPlan(way, priority=known, said=f"native: {len(known)} priorities")
        steps = _distinct(kinds)
        home = {name: moved.get(name) or home_of(view, devices, node) for name, node in view.nodes.items()}
        wanted = Wanted(strategy.priority, strategy.seconds)
        if splits:
            edges = part_edges(view, classes, steps, wanted, splits, home, self.pools)
        else:
            edges = order_edges(view, classes, steps, wanted, home, self.pools)
        said = f"control: {len(edges)} edges in {len(steps)} step kinds"
        return OrderPlan(way, edges, said=f"{said}; {why}" if why else said)


def choose(setting: Order, strategy: LiveStrategy, native: str) -> tuple[Order, str]:
    """The way, and why not another. A setting other than auto goes before what the strategy asks for."""
    if not strategy.priority:
        return Order.NONE, "the strategy orders nothing"
    asked = strategy.order if setting is Order.AUTO else setting
    if asked is Order.NONE:
        return Order.NONE, "STEPD_ORDER=none" if setting is Order.NONE else "the strategy asks for none"
    if asked is Order.CONTROL:
        return Order.CONTROL, ""
    if not native:
        return Order.NATIVE, ""
    return Order.CONTROL, f"the native executor is not used: {native}"


def _sorted(view: GraphView, classes: Classes, name: str) -> bool:
    """Whether the native executor sorts an op: those that are copied for it, and compute."""
    op = view.nodes[name].op
    return name not in classes.held and op not in ("Const", "NoOp") and op not in rules.VARIABLES and not is_stateful(op)


def _pays(seconds: Collection[float]) -> bool:
    """Whether sorting a step's ops in one process can pay: it takes some tens of nanoseconds for each, however short it is."""
    return 2.0 * sum(cost for cost in seconds if cost >= COSTLY_SECONDS) >= sum(seconds)


def still_possible(order: OrderPlan, classes: Classes) -> OrderPlan:
    """`order` for the graph as it is after the program has added to it: without what can no longer be copied."""
    edges = tuple(edge for edge in order.edges if not {edge.before, edge.tie.signal, edge.tie.held} & classes.held.keys())
    priority = {name: p for name, p in order.priority.items() if name not in classes.held}
    return replace(order, edges=edges, priority=priority)


def pools(devices: Devices, threads: int) -> dict[str, Pool]:
    """Where ops of a session's devices run: one at a time on a GPU and on a local worker; in one process all CPU devices share
    `threads` threads (0: another program's server, of which nothing is known)."""
    found = {}
    for device in devices.usable:
        if device.type == "GPU" or devices.local_workers:
            found[device.name] = Pool(device.name, 1)
        elif threads:
            found[device.name] = Pool("threads", threads)
    return found


def _distinct(kinds: Iterable[StepKind]) -> Sequence[StepKind]:
    return list(dict.fromkeys(kinds))
