"""Which control edges a strategy's order needs: few, harmless to every step kind, and acyclic over all devices. Pure.

An edge is chosen between two costly ops of one device of which the second, in a list schedule by the strategy's priorities, was
kept waiting by the first. Everything else stays free. How an edge is tied into a copy: `ties`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from stepd.hook.engine import rules
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.op_defs import function_attrs, is_stateful, output_types
from stepd.hook.order import ties
from stepd.hook.order.conditions import Conditions, conditions
from stepd.hook.order.finder import Finder
from stepd.hook.order.rounds import may_need
from stepd.hook.order.schedule import Pool, schedule
from stepd.hook.order.steps import executed, memberships
from stepd.hook.order.ties import Tie, tie
from stepd.hook.order.waits import waits
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind

# Ops that take less than this share of their device's time, or less than so many seconds, are left to the runtime.
COSTLY_SHARE = 0.002
COSTLY_SECONDS = 20e-6
# Ops that compute next to nothing, where no strategy says what ops cost.
_CHEAP = frozenset({
    "Const", "Identity", "IdentityN", "NoOp", "Placeholder", "PlaceholderWithDefault", "Reshape", "Shape", "ShapeN", "Size",
    "Rank", "Squeeze", "ExpandDims", "StopGradient", "PreventGradient", "StridedSlice", "Pack", "Cast", "Fill", "Range",
    "BroadcastGradientArgs", "ConcatOffset", "InvertPermutation", "ZerosLike", "OnesLike", "ReadVariableOp", "VarHandleOp",
    "VariableV2", "Variable", "VarIsInitializedOp", "VariableShape", "ControlTrigger",
})  # fmt: skip


@dataclass(frozen=True)
class Edge:
    """`after` does not begin before `before` has run; `tie` says by which nodes this is done.

    `parts`: which parts of the signal and of the held op are meant where ops run in parts; -1: the whole op, or its join.
    """

    before: str
    after: str
    tie: Tie
    parts: tuple[int, int] = (-1, -1)


@dataclass(frozen=True)
class Wanted:
    """What a strategy says of order. `seconds`: of the ops that it knows; empty: every op that computes counts alike."""

    priority: Mapping[str, int]
    seconds: Mapping[str, float]


def order_edges(
    view: GraphView,
    classes: Classes,
    kinds: Sequence[StepKind],
    wanted: Wanted,
    device_of: Mapping[str, str],
    pool_of_device: Mapping[str, Pool],
) -> tuple[Edge, ...]:
    """The edges for steps of `kinds`. `device_of`: where each op of the graph is; devices without a pool are left alone.

    The edges of a kind that would close a cycle with those of another are left out.
    """
    steps = [executed(view, kind) for kind in kinds]
    members = memberships(steps)
    needed = may_need(view, view.nodes.keys())  # also what no step runs: a cycle through fed ops could not be imported
    chosen: list[Edge] = []
    for step in sorted(steps, key=lambda step: -sum(wanted.seconds.get(name, 0.0) for name in step)):
        more = _edges_of_step(view, classes, step, members, wanted, device_of, pool_of_device, {edge.after for edge in chosen})
        plain = [edge for edge in more if edge.tie.signal == edge.before and edge.tie.held == edge.after]
        chosen += next((edges for edges in (more, plain) if is_acyclic(needed, [*chosen, *edges])), [])
    return tuple(chosen)


def is_acyclic(needed: Mapping[str, Collection[str]], edges: Iterable[Edge]) -> bool:
    """The proof: the whole graph, all devices, with all edges between what signals and what waits, can be sorted."""
    return sorted_by_needs(needed, [(edge.tie.signal, edge.tie.held) for edge in edges]) is not None


def _edges_of_step(
    view: GraphView,
    classes: Classes,
    step: frozenset[str],
    members: Mapping[str, int],
    wanted: Wanted,
    device_of: Mapping[str, str],
    pool_of_device: Mapping[str, Pool],
    done: Collection[str],
) -> list[Edge]:
    needed = may_need(view, step)
    order = sorted_by_needs(needed)
    if order is None:
        return []
    pool_of = {name: pool for name in order if (pool := pool_of_device.get(device_of[name])) is not None}
    seconds = worth_an_order({name: seconds_of(view, name, wanted) for name in pool_of}, device_of, wanted)
    plan = schedule(needed, pool_of, seconds, wanted.priority)
    held = conditions(view, order)
    ends = _ends(view, classes, seconds, wanted, held)
    by_start = sorted(ends, key=lambda name: (plan.start[name], wanted.priority[name]))
    numbers = _with_groups(classes, by_start)
    waiting, above = waits(view, order, needed, device_of), behind(order, needed, numbers)
    finder = Finder(str, members, held, device_of, waiting, above, numbers, ends, wanted.priority)

    def tied(before: str, after: str) -> Edge | None:
        found = tie(view, classes, before, after, members, finder.may)
        return Edge(before, after, found) if found is not None else None

    edges = []
    for after in by_start:
        if after not in done:
            edges += finder.edges_to(after, plan, tied)
    return edges


def seconds_of(view: GraphView, name: str, wanted: Wanted) -> float:
    """What a strategy says that an op takes; without that, whether it computes."""
    if wanted.seconds:
        return wanted.seconds.get(name, 0.0)
    node = view.nodes[name]
    if node.op in _CHEAP or node.op in rules.CONTROL_FLOW:
        return 0.0
    return 1.0 if any(dtype % 100 in ties.FLOATS for dtype in output_types(node.proto)) else 0.0  # the others compute shapes


def worth_an_order(work: Mapping[str, float], device_of: Mapping[str, str], wanted: Wanted) -> dict[str, float]:
    """Seconds of what is worth an order; the others run as soon as they can, and hold nobody up."""
    found = {name: cost for name, cost in work.items() if cost > 0.0}
    if not wanted.seconds:
        return found
    total: dict[str, float] = {}
    for name, cost in found.items():
        total[device_of[name]] = total.get(device_of[name], 0.0) + cost
    return {name: cost for name, cost in found.items() if cost >= max(COSTLY_SECONDS, COSTLY_SHARE * total[device_of[name]])}


def _ends(
    view: GraphView,
    classes: Classes,
    costly: Iterable[str],
    wanted: Wanted,
    held: Mapping[str, Conditions | None],
) -> set[str]:
    """Ops that an edge may begin or end at: costly, of known priority, copied with the step, no state, no functions."""
    return {name for name in costly if name in wanted.priority and may_end(view, classes, name, held)}


def may_end(view: GraphView, classes: Classes, name: str, held: Mapping[str, Conditions | None]) -> bool:
    """Whether an edge may begin or end at an op that is copied with the step: no loops, no state, no functions."""
    node = view.nodes[name]
    return (
        name not in classes.held
        and held[name] is not None
        and node.op not in rules.CONTROL_FLOW
        and not is_stateful(node.op)
        and not function_attrs(node.op)
    )


def _with_groups(classes: Classes, ends: Iterable[str]) -> dict[str, int]:
    """Numbers of the ends and of all that is in a group with one: what an edge may be tied to."""
    groups = dict.fromkeys(classes.group_of[name] for name in ends if name in classes.group_of)
    names = [*ends, *(name for group in groups for name in classes.groups[group])]
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def behind(
    order: Iterable[str], needed: Mapping[str, Iterable[str]], numbers: Mapping[str, int], opaque: Collection[str] = ()
) -> dict[str, int]:
    """Op -> bit set of the numbered ops among its ancestors, itself included; of those behind `opaque` ops it is not told."""
    found: dict[str, int] = {}
    for name in order:
        bits = 1 << numbers[name] if name in numbers else 0
        for source in needed[name] if name not in opaque else ():
            bits |= found[source]
        found[name] = bits
    return found
