"""What TensorFlow does once for a step that it builds, and not in each of its runs: kernels that read a file, call Python or draw.

A copy would have it done again. Pure; it must not know sessions or strategies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepd.hook.engine import folded, graphview, op_defs, rules
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.races import is_write

_INITIALIZERS = frozenset({"Assign", "AssignVariableOp", "MakeIterator"})


def reads_once(view: GraphView) -> str:
    """Why steps must keep to the program's own ops where TensorFlow reads a file, or calls Python, when it builds a step, and would
    for a copy again; but what only an initializer is given is read for that."""
    for node in view.nodes.values():
        if node.op in rules.MADE_ONCE and (not node.inputs or node.name in folded.constants(view)) and _is_used(view, node.name):
            return f"{node.name} ({node.op}) runs when TensorFlow builds a step, once for all its runs"
        if _draws_once(node.proto) or (view.functions and any(map(_draws_once, _inside(view, node)))):
            return f"{node.name} has its regions drawn when TensorFlow builds a step, once for all its runs"
        if _reads_file(node.proto) or (view.functions and any(map(_reads_file, _inside(view, node)))):
            return f"{node.name} reads a file when TensorFlow builds a step, once for all its runs"
        if not view.functions or "Dataset" in node.op or "Iterator" in node.op:
            continue
        if any(inner.op in rules.MADE_ONCE for inner in _inside(view, node)):
            return f"{node.name} calls what may run when TensorFlow builds a step, once for all its runs"
    return ""


def _inside(view: GraphView, node: Node) -> Iterator[Any]:
    return (inner for body in view.bodies(node.proto) for inner in body.node_def)


def _draws_once(node: Any) -> bool:
    """Does its kernel draw a seed when it is made, and keep to it?"""
    attr = node.attr
    return node.op in rules.FRACTIONAL and attr["deterministic"].b and not (attr["seed"].i or attr["seed2"].i)


def _reads_file(node: Any) -> bool:
    """Does its kernel read a file when it is made?"""
    attr, others = rules.FILE_OF_KERNEL.get(node.op, ("", ()))
    name = node.attr[attr].s if attr else b""
    return bool(name) and not name.startswith(others)


def _is_used(view: GraphView, name: str) -> bool:
    """Does its value leave a step, or change what stays from step to step, other than as what that begins with?"""
    stack, seen = [name], {name}
    while stack:
        last = view.nodes[stack.pop()]
        users = list(graphview.takers(view, last.name))
        if not users and (op_defs.output_types(last.proto) or is_write(last.op)):  # a check has neither
            return True
        further = [user for user in users if user not in seen and not _begins(view.nodes[user])]
        seen.update(further)
        stack += further
    return False


def _begins(node: Node) -> bool:
    """Does it put a value where it stays?"""
    return node.op in _INITIALIZERS or node.op.startswith("InitializeTable") or "Dataset" in node.op
