"""Where a step enters the loops of the first generation in which an op may fail. Pure.

Nothing outside of a loop comes before an op in it but what comes before the loop. Where an op in a loop is to wait, all of the loop
waits: what its condition is first made of. It must not know what waits, nor for whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.conditions import Conditions, loops, of_input
from stepd.hook.order.walk import ENTER, NEXT


def entrances(view: GraphView, order: Sequence[str], names: Iterable[str]) -> dict[str, str]:
    """Op in loops -> an Enter of the outermost, without which no round of it begins. Of `names`, of a step that can run in this
    `order`."""
    around = loops(view, order)
    conditions_of = {around[name]: name for name in order if view.nodes[name].op == "LoopCond"}
    found: dict[str, str] = {}
    for name in names:
        outermost = around[name][:1]
        enter = _first(view, conditions_of[outermost], outermost) if outermost in conditions_of else None
        if enter is not None:
            found[name] = enter
    return found


def entered(view: GraphView, held: Mapping[str, Conditions | None], enter: str) -> Conditions | None:
    """The conditions under which a loop is begun, of those that are `held` outside of it."""
    found: set[tuple[str, int]] = set()
    for source, index in view.nodes[enter].inputs:
        conditions = of_input(view, held, source, index) if source in held else frozenset[tuple[str, int]]()
        if conditions is None:
            return None
        found |= conditions
    return frozenset(found)


def _first(view: GraphView, condition: str, loop: tuple[str, ...]) -> str | None:
    """An Enter of the `loop` that its `condition` is made of in the first round."""
    seen, stack = {condition}, [condition]
    while stack:
        node = view.nodes[stack.pop()]
        if node.op in ENTER and (node.proto.attr["frame_name"].s.decode(),) == loop:
            return node.name
        more = {source for source, _ in node.inputs if view.nodes[source].op not in NEXT} - seen
        seen |= more
        stack += sorted(more)
    return None
