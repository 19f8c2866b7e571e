"""What can be computed before a graph runs: Grappler does, and folds it into constants. Pure."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterator
from typing import Any

from tensorflow.python.framework import dtypes

from stepd.hook.engine import op_defs, rules
from stepd.hook.engine.graphview import GraphView

_KINDS = map(dtypes.as_dtype, range(1, 24))
_FLOATING = frozenset(kind.as_datatype_enum for kind in _KINDS if kind.is_floating or kind.is_complex)
_found: weakref.WeakKeyDictionary[GraphView, frozenset[str]] = weakref.WeakKeyDictionary()


def constants(view: GraphView) -> frozenset[str]:
    """The ops that can be computed before the graph runs, looked for once. Shapes may be known then, so they count."""
    kept = _found.get(view)
    if kept is None:
        kept = _found[view] = _made_of(view, {name for name, node in view.nodes.items() if node.op in rules.OF_SHAPES})
    return kept


def with_loops(view: GraphView) -> frozenset[str]:
    """Those and, of what does not change in loops, what they are given of such constants and compute of it."""
    found = constants(view)
    enters = [node for node in view.nodes.values() if node.op == "Enter" and node.proto.attr["is_constant"].b]
    while entered := {node.name for node in enters if node.inputs[0][0] in found and node.name not in found}:
        found = _made_of(view, found | entered)
    return found


def certain(view: GraphView) -> frozenset[str]:
    """Those of them that are made of constants alone, whatever is known of shapes."""
    return _made_of(view, set())


def stand_ins(view: GraphView) -> frozenset[str]:
    """Those that may be constants, and what stands for one if not fed."""
    made = constants(view)
    return _made_of(
        view, made | {n for n, node in view.nodes.items() if node.op == "PlaceholderWithDefault" and node.inputs[0][0] in made}
    )


def together(view: GraphView) -> Iterator[tuple[str, str]]:
    """Pairs of ops that compute floating-point constants and what they are given: folded, where all share a device, they may round
    otherwise than when they run, in kernels that are other ones, or rewritten. What stands for a constant if not fed is one."""
    made = certain(view)
    stand_ins = {name for name, node in view.nodes.items() if node.op == "PlaceholderWithDefault" and node.inputs[0][0] in made}
    made = _made_of(view, stand_ins) if stand_ins else made
    for name in made:
        node = view.nodes[name]
        if node.op != "Const" and not _FLOATING.isdisjoint(op_defs.output_types(node.proto)):
            yield from ((source, name) for source, k in node.inputs if k >= 0)


def _made_of(view: GraphView, known: Collection[str]) -> frozenset[str]:
    """Constants, also those that wait for something, `known`, and what is computed of nothing else."""
    found = {*known, *(name for name, node in view.nodes.items() if node.op == "Const")}
    stack = list(found)
    while stack:
        for name in view.consumers[stack.pop()]:
            node = view.nodes[name]
            if name not in found and folds(node.proto) and all(source in found for source, k in node.inputs if k >= 0):
                found.add(name)
                stack.append(name)
    return frozenset(found)


def folds(node: Any) -> bool:
    """Does Grappler compute the op of such a NodeDef ahead when it knows what it is given?"""
    if not op_defs.is_pure(node.op) or node.op in rules.CONTROL_FLOW or node.op in rules.UNMOVED:
        return False
    return not all(given.startswith("^") for given in node.input)
