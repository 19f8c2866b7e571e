"""Who works on what an op owns (a table, an iterator), and what is owned where no op of the graph stands for it. Pure.

A handle goes on through identities, conditions and loops, and into functions; and ops that say the same name stand for the same. It
must not know what a restart does with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tensorflow.core.framework import types_pb2

from stepd.hook.engine import folded, graphview, op_defs, rules
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.python_given import gets_to_python


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
    knows = op_defs.op_def(node.op) is not None and not op_defs.function_attrs(node.op)
    return any(map(op_defs.holds_state, op_defs.output_types(node.proto))) and not (knows and op_defs.is_stateful(node.op))


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
    python = [node for node in view.nodes.values() if any(op in rules.PYTHON_ON_MEMORY for op in _ops(view, node))]
    constants = folded.stand_ins(view) if python else frozenset()
    for node in python:  # of which any may write into an array that it is given
        for index, (source, k) in enumerate(node.inputs):
            unsafe = k >= 0 and source in constants and not _is_safe(view.nodes[source].proto, k)
            if unsafe and gets_to_python(view, node.proto, index):
                return node.name
    for node in view.nodes.values():
        if _in_place(node.op, view.nodes[node.inputs[0][0]].op if node.inputs else ""):
            return node.name
        if view.functions and any(map(_writes_in_place, view.bodies(node.proto))):
            return node.name
    return ""


def _ops(view: GraphView, node: Node) -> Iterator[str]:
    yield node.op
    if view.functions:
        yield from (inner.op for body in view.bodies(node.proto) for inner in body.node_def)


def _in_place(op: str, of: str) -> bool:
    return op in rules.UNSHARED or (op in rules.IN_PLACE and of not in rules.FRESH)


def _writes_in_place(body: Any) -> bool:
    inner = {node.name: node for node in body.node_def}
    sources = {name: [inner.get(each.partition(":")[0]) for each in node.input if each[0] != "^"] for name, node in inner.items()}
    if any(_in_place(node.op, first.op if (first := next(iter(sources[name]), None)) else "") for name, node in inner.items()):
        return True
    python = [name for name, node in inner.items() if node.op in rules.PYTHON_ON_MEMORY]
    constants = {name for name, node in inner.items() if node.op == "Const"} if python else set()
    while True:  # chains of constants are short
        more = [
            name for name in inner.keys() - constants if sources[name] and all(s and s.name in constants for s in sources[name])
        ]
        more = [name for name in more if folded.folds(inner[name]) or inner[name].op == "PlaceholderWithDefault"]
        if not more:
            break
        constants.update(more)
    return any(each is not None and each.name in constants and not _is_safe(each, 0) for name in python for each in sources[name])


def _is_safe(node: Any, index: int) -> bool:
    """Is it a constant into which Python cannot write: one number, which it is given as such, a text, or a handle?"""
    shape = node.attr["value"].tensor.tensor_shape if node.op == "Const" else None
    type_ = op_defs.output_types(node)[index]
    return (shape is not None and not shape.dim) or type_ == types_pb2.DT_STRING or op_defs.holds_state(type_)
