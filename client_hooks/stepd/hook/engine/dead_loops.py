"""Loops that go on while one of their values is dead: what is behind it never runs, and must never be waited for. Pure.

A value is dead that comes from a branch that is not taken. Programs hand such values on where they leave a branch without a Merge:
normalizations in `tf.cond` whose updates the gradients of a recurrent net wait for; in `tf.control_dependencies([loss])` the tuple
of a v1 loop's gradients waits for an op of the loop's body, which is dead in the last round, in which a gradient leaves, so that
what is before the loop (an encoder before a decoder) never trains. Where a dead value enters a loop whose counter is alive, or is
what a round hands on to the next, the counter goes on, the value stays behind, and nothing leaves the loop, not even a dead value.
A loop that is dead as a whole is left by dead values, but only once all its Enters have been given something; where one of these
waits for the loop's end, nothing leaves it either. On one device a step ends all the same, without the ops that were never
reached; a device that is to be sent one of their values waits for it for ever. So it is where an Enter waits for the end of a loop
that has more rounds than may run at once: the first of them does not end before all Enters have been given something.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from stepd.hook.arrays import array_of
from stepd.hook.engine import rules
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.order.conditions import NONE, Conditions, loops, merged, of_input
from stepd.hook.order.walk import ENTER, EXIT, NEXT, needs, sorted_by_needs

_ALIVE = 1


def dead_loop(view: GraphView) -> str:
    """Why steps must keep to the program's own ops where a loop of the graph may go on without one of its values; "" where none
    may."""
    if not any(node.op in ENTER for node in view.nodes.values()):
        return ""
    order = sorted_by_needs(needs(view, view.nodes.keys()))
    if order is None:
        return ""
    around = loops(view, order)
    conditions = {around[name]: name for name in order if view.nodes[name].op == "LoopCond"}
    held, entering = _conditions(view, order, around, conditions)
    goes_on = {  # by loop: what must hold for its condition to be asked
        loop: NONE.union(*(entering[enter] for enter in _entered(view, around, name))) for loop, name in conditions.items()
    }
    late = _late(view, order, around)
    for name in order:
        node, loop = view.nodes[name], around[name]
        if name in late and (len(loop) > 1 or goes_on.get(loop)):
            return (
                f"{name} is given what waits for the end of the loop that it enters, which never comes where that is dead "
                "as a whole (in a branch not taken, or in another loop's last round)"
            )
        if name in late and _rounds(view, conditions.get(loop, "")) >= node.proto.attr["parallel_iterations"].i:
            return (
                f"{name} is given what waits for the end of the loop that it enters, which never comes where that has as many "
                "rounds as may run at once (parallel_iterations)"
            )
        if node.op in ENTER and entering[name] - goes_on.get(loop, NONE):
            return _told(name, "is given")
        if node.op in NEXT and _above(view, held, node) - {(f"{conditions.get(loop)}:0", _ALIVE)} - goes_on.get(loop, NONE):
            return _told(name, "hands on to the next round")
    return ""


def _rounds(view: GraphView, condition: str) -> float:
    """How many rounds a loop may have, where a counter that begins with a constant is compared to one; else infinitely many."""
    stack, least = [condition], inf
    while stack:
        node = view.nodes.get(stack.pop())
        if node is not None and node.op in ("LoopCond", "LogicalAnd"):
            stack += [source for source, _ in node.inputs]
        elif node is not None and node.op == "Less":
            begins, ends = (_constant(view, source) for source, _ in node.inputs[:2])
            least = min(least, inf if begins is None or ends is None else ends - begins)
    return least


def _constant(view: GraphView, name: str) -> float | None:
    """The number that comes into a loop and from where a counter begins."""
    node = view.nodes[name]
    while node.op in ENTER or any(view.nodes[source].op in NEXT for source, _ in node.inputs):
        node = view.nodes[node.inputs[0][0]]
    if node.op != "Const":
        return None
    value = array_of(node.proto.attr["value"].tensor)
    return float(value) if value.ndim == 0 else None


def _told(name: str, what: str) -> str:
    return (
        f"{name} {what} a value that may be dead (of a branch not taken, or of a loop's last round) while the loop goes on, so "
        "that TensorFlow never runs what is behind it; gradients that wait for an op of a branch or of a loop are so"
    )


def _conditions(
    view: GraphView, order: list[str], around: Mapping[str, tuple[str, ...]], conditions: Mapping[tuple[str, ...], str]
) -> tuple[dict[str, Conditions], dict[str, Conditions]]:
    """What must hold for each op to be alive, within a round of its loop; and, before the loop, for what an Enter is given. What is
    not known of an op (a Merge of something else than two branches) is a condition of its own, that it is alive."""
    held: dict[str, Conditions] = {}
    entering: dict[str, Conditions] = {}
    leaving: dict[tuple[str, ...], Conditions] = {}
    for name in order:
        node = view.nodes[name]
        above = _above(view, held, node)
        held[name] = above
        if node.op in ENTER:
            entering[name], held[name] = above, NONE
            leaving[around[name]] = leaving.get(around[name], NONE) | above
        elif node.op in EXIT:
            held[name] = leaving.get(around[name], NONE)
            if above - {(f"{conditions.get(around[name])}:0", 1 - _ALIVE)} - held[name]:  # it may leave as a dead value
                held[name] |= {(name, _ALIVE)}
        elif node.op in rules.MERGES:
            turns = any(view.nodes[source].op in NEXT for source, _ in node.inputs)
            held[name] = NONE if turns else _after_merge(view, held, node)
        elif node.op == "ControlTrigger":  # runs, whatever it waits for is dead
            held[name] = NONE
        elif node.op in ("_SwitchN", "_XlaMerge", "RefSelect"):
            held[name] = above | {(name, _ALIVE)}
    return held, entering


def _above(view: GraphView, held: Mapping[str, Conditions], node: Node) -> Conditions:
    found = NONE
    for source, index in node.inputs:
        conditions = of_input(view, held, source, index) if source in held else None
        if conditions and conditions is not found:  # mostly these are the very same
            found = found | conditions if found else conditions
    return found


def _after_merge(view: GraphView, held: Mapping[str, Conditions], node: Node) -> Conditions:
    given = [of_input(view, held, source, index) for source, index in node.inputs if source in held and index >= 0]
    found = merged(given)
    if found is None:
        known = [each for each in given if each is not None]
        least = min(known, key=len, default=NONE)
        if known and len(known) == len(given) and all(least <= other for other in known):
            return least  # where another is alive, this one is
    return frozenset({(node.name, _ALIVE)}) if found is None else found


def _late(view: GraphView, order: list[str], around: Mapping[str, tuple[str, ...]]) -> set[str]:
    """Enters that wait for an Exit of their own loop, as what counts a loop's rounds for gradients does in a scope that waits for
    the loss. A dead value leaves a loop only when all its Enters have been given something."""
    bits: dict[tuple[str, ...], int] = {}
    left: dict[str, int] = {}  # the loops that were left before an op, a bit each
    late = set()
    for name in order:
        node = view.nodes[name]
        left[name] = 0
        for source, _ in node.inputs:
            left[name] |= left.get(source, 0)
        if node.op in EXIT:
            left[name] |= bits.setdefault(around[name], 1 << len(bits))
        elif node.op in ENTER and left[name] & bits.get(around[name], 0):
            late.add(name)
    return late


def _entered(view: GraphView, around: Mapping[str, tuple[str, ...]], name: str) -> Iterator[str]:
    """The Enters through which a loop is given what the op `name` in it needs."""
    seen = {name}
    stack = [name]
    while stack:
        node = view.nodes[stack.pop()]
        if node.op in ENTER and around[node.name] == around[name]:
            yield node.name
            continue
        new = [source for source, _ in node.inputs if source not in seen]
        seen.update(new)
        stack += dict.fromkeys(new)
