"""What is inside the functions that an op calls, and what in them is made of what they are given. Pure.

It must not know which of that may fail.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.op_defs import function_attrs

OF_A_SHAPE = frozenset({"Shape", "ShapeN", "Size", "Rank"})
"""What looks at the shape of a value alone."""
# Nor what a gradient's forward function has left it: it has been found good there.
_STOPS = OF_A_SHAPE | {"TensorListPopBack"}


def functions(view: GraphView, name: str) -> Sequence[Any]:
    """The FunctionDefs of all functions that an op calls."""
    op = view.nodes[name].op
    return () if function_attrs(op) == () or "Dataset" in op else view.bodies(view.nodes[name].proto)


def bodies(view: GraphView, name: str) -> list[Any]:
    """The NodeDefs of all functions that an op calls."""
    return [inner for function in functions(view, name) for inner in function.node_def]


def looks_at_what_it_is_given(function: Any, looked_at: Mapping[str, Collection[int]]) -> bool:
    """Has a FunctionDef an op, of a type in `looked_at`, with one of these inputs made of values, not shapes, that the function is
    given?"""
    nodes = {inner.name: inner for inner in function.node_def}
    found = (inner.input[k] for inner in nodes.values() for k in looked_at.get(inner.op, ()) if k < len(inner.input))
    return any(_is_given(nodes, value) for value in found if not value.startswith("^"))


def _is_given(nodes: Mapping[str, Any], value: str) -> bool:
    seen, stack = {value}, [value]
    while stack:
        node = nodes.get(stack.pop().split(":")[0])
        if node is None:  # an argument
            return True
        more = set() if node.op in _STOPS else {source for source in node.input if not source.startswith("^")} - seen
        seen |= more
        stack += more
    return False
