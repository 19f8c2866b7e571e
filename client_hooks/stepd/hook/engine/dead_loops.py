"""Loops that are given a value that never comes to life: what is behind them never runs, and must never be waited for. Pure.

TensorFlow makes such loops: in `tf.control_dependencies([loss])` the tuple of a v1 loop's gradients waits for an op of the loop's
body, which is dead in the last round, in which a gradient leaves; so the gradient is dead when it leaves, and with it what is
before the loop (an encoder before a decoder) never trains. Where the gradient enters another loop, that loop's counter goes on
while its values stay behind in the first round, and nothing leaves it, not even a dead value. On one device a step ends all the
same, without the ops that were never reached; a device that is to be sent one of their values waits for it for ever.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.conditions import Conditions, in_a_round, loops, of_input
from stepd.hook.order.walk import ENTER, EXIT, needs, sorted_by_needs

_MERGE = frozenset({"Merge", "RefMerge"})


def dead_loop(view: GraphView) -> str:
    """Why steps must keep to the program's own ops where a loop of the graph is given a dead value; "" where none is."""
    if not any(node.op in EXIT for node in view.nodes.values()):
        return ""
    order = sorted_by_needs(needs(view, view.nodes.keys()))
    if order is None:
        return ""
    found = in_a_round(view, order, loops(view, order))
    dead: dict[str, str] = {}  # what never comes to life, once it has left a loop; value: the op that makes it so
    for name in order:
        node = view.nodes[name]
        given = [dead[source] for source, _ in node.inputs if source in dead]
        if node.op in EXIT and _never(view, found, name):
            dead[name] = name
        elif given and (node.op not in _MERGE or len(given) == len(node.inputs)):
            if node.op in ENTER:
                return (
                    f"{name} takes into a loop what never leaves another one ({given[0]}), so that TensorFlow never runs what is "
                    "behind it; gradients of loops that are made under tf.control_dependencies are so"
                )
            dead[name] = given[0]
    return ""


def _never(view: GraphView, found: Mapping[str, Conditions | None], name: str) -> bool:
    """Whether what an Exit is given hangs on both outcomes of one predicate."""
    above = [of_input(view, found, source, index) for source, index in view.nodes[name].inputs if source in found]
    held = frozenset[tuple[str, int]]().union(*(conditions for conditions in above if conditions is not None))
    return any((predicate, 1 - outcome) in held for predicate, outcome in held)
