"""Under which conditions an op of a graph with v1 control flow runs. Pure.

A dead op makes the ops dead that have a control edge from it, and an edge into a loop's body is another edge in every iteration. So
an order edge may only lie between ops outside of all loops, from an op that runs under no more conditions than the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stepd.hook.engine import rules
from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.walk import ENTER, EXIT, NEXT

# (Switch's predicate, output taken): all of them must hold.
Conditions = frozenset[tuple[str, int]]
NONE: Conditions = frozenset()

_UNKNOWN = frozenset({"_SwitchN", "_XlaMerge", "RefSelect"})
_BRANCHING = _UNKNOWN | rules.SWITCHES | rules.MERGES | ENTER | EXIT


def conditions(view: GraphView, order: Collection[str]) -> dict[str, Conditions | None]:
    """Conditions of the ops of `order` (each after what it needs); None inside of loops and where nothing can be said."""
    around = loops(view, order)
    found = in_a_round(view, order, around)
    for name in order:
        if around[name] and (len(around[name]) > 1 or view.nodes[name].op not in EXIT):
            found[name] = None
    return found


def in_a_round(view: GraphView, order: Collection[str], around: Mapping[str, tuple[str, ...]]) -> dict[str, Conditions | None]:
    """As `conditions`, but of an op inside of loops (`around`) those that it has within a round of the innermost."""
    if all(view.nodes[name].op not in _BRANCHING for name in order):
        return dict.fromkeys(order, NONE)
    found: dict[str, Conditions | None] = {}
    entered: dict[tuple[str, ...], Conditions | None] = {}  # by loop: under what conditions all its inputs are there
    for name in order:
        node = view.nodes[name]
        above = [of_input(view, found, source, index) for source, index in node.inputs if source in found]
        if node.op in ENTER:
            entered[around[name]] = _all([entered.get(around[name], NONE), *above])
            found[name] = NONE
        elif node.op in EXIT:
            found[name] = entered.get(around[name])
        elif node.op in rules.MERGES:
            turns = any(view.nodes[source].op in NEXT for source, _ in node.inputs)
            found[name] = NONE if turns else merged(above)
        else:
            found[name] = None if node.op in _UNKNOWN else _all(above)
    return found


def loops(view: GraphView, order: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Names of the loops around each op of `order` (each after what it needs), the outermost first."""
    if all(view.nodes[name].op not in ENTER for name in order):
        return dict.fromkeys(order, ())
    found: dict[str, tuple[str, ...]] = {}
    for name in order:
        node = view.nodes[name]
        around = max((_loops_after(view, found, source) for source, _ in node.inputs if source in found), key=len, default=())
        found[name] = (*around, node.proto.attr["frame_name"].s.decode()) if node.op in ENTER else around
    return found


def _loops_after(view: GraphView, loops: Mapping[str, tuple[str, ...]], source: str) -> tuple[str, ...]:
    """The loops around the outputs of `source`."""
    return loops[source][:-1] if view.nodes[source].op in EXIT else loops[source]


def of_input(view: GraphView, found: Mapping[str, Conditions | None], source: str, index: int) -> Conditions | None:
    """What must hold for an input to be alive."""
    node, held = view.nodes[source], found.get(source)
    if held is None or node.op not in rules.SWITCHES or index < 0:
        return held
    predicate, output = node.inputs[1]
    # tf.cond hands its predicate on to the ops of its branches, not to the pivots; a loop in a branch may be given it.
    while view.nodes[predicate].op == "Identity" or view.nodes[predicate].op in ENTER:
        predicate, output = view.nodes[predicate].inputs[0]
    return held | {(f"{predicate}:{output}", index)}


def _all(inputs: list[Conditions | None]) -> Conditions | None:
    if any(held is None for held in inputs):
        return None
    return frozenset[tuple[str, int]]().union(*(held for held in inputs if held is not None))


def merged(inputs: list[Conditions | None]) -> Conditions | None:
    """Of a Merge: the two branches of one condition together are always there; of anything else nothing is known."""
    if len(inputs) != 2 or inputs[0] is None or inputs[1] is None:
        return None
    one, other = inputs[0] - inputs[1], inputs[1] - inputs[0]
    if len(one) == len(other) == 1:
        (left,), (right,) = one, other
        if left[0] == right[0] and {left[1], right[1]} == {0, 1}:
            return inputs[0] & inputs[1]
    return None
