"""Who works on what an op owns (a table, an iterator), and what is owned where no op of the graph stands for it. Pure.

A handle goes on through identities, conditions and loops, and into functions; and ops that say the same name stand for the same. It
must not know what a restart does with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.graphview import GraphView, Node


class Use(NamedTuple):
    """An op of the graph that may work on something, and what it does with it: its own type, or that of an op in what it calls."""

    by: str
    op: str
    directly: bool  # is it given the handle by the very op that was asked for, and by nothing else?


def uses(view: GraphView, name: str, ran: Collection[str] | None = None) -> Iterator[Use]:
    """All that may work on what the op `name` owns; of the ops `ran`, if given."""
    owner = view.nodes[name]
    handles = [node.name for node in view.nodes.values() if _owns_the_same(node, owner) and (ran is None or node.name in ran)]
    for handle in handles:  # it grows
        for user in graphview.takers(view, handle):
            if ran is not None and user not in ran:
                continue
            node = view.nodes[user]
            yield Use(user, node.op, handle == name)
            for body in view.bodies(node.proto):
                yield from (Use(user, inner.op, False) for inner in body.node_def)
            if user not in handles and _hands_on(node):
                handles.append(user)


def _owns_the_same(node: Node, owner: Node) -> bool:
    return node.op == owner.op and graphview.name_of_state(node.proto) == graphview.name_of_state(owner.proto)


def _hands_on(node: Node) -> bool:
    knows = graphview.op_def(node.op) is not None and not graphview.function_attrs(node.op)
    return any(map(graphview.holds_state, graphview.output_types(node.proto))) and not (knows and graphview.is_stateful(node.op))


def variables_in_functions(view: GraphView, carried: Collection[str], ran: Collection[str] | None = None) -> list[str]:
    """Ops that call a function in which there is a variable for which none of the ops `carried` stands; of the ops `ran`."""
    if not view.functions:
        return []
    known = {graphview.name_of_state(view.nodes[name].proto) for name in carried}
    return [
        node.name
        for node in view.nodes.values()
        if (ran is None or node.name in ran)
        and any(
            inner.op in rules.VARIABLES and graphview.name_of_state(inner) not in known
            for body in view.bodies(node.proto)
            for inner in body.node_def
        )
    ]


def written_in_place(view: GraphView) -> str:
    """An op that writes into the memory of what it is given, which is not known to be a copy: a constant, or what a variable gives
    out, keeps what was written. None of this has a state in TensorFlow's eyes."""
    for node in view.nodes.values():
        if node.op in rules.IN_PLACE and view.nodes[node.inputs[0][0]].op not in rules.FRESH:
            return node.name
        for body in view.bodies(node.proto) if view.functions else ():
            ops = {inner.name: inner.op for inner in body.node_def}
            if any(
                inner.op in rules.IN_PLACE and ops.get(inner.input[0].partition(":")[0]) not in rules.FRESH
                for inner in body.node_def
            ):
                return node.name
    return ""
