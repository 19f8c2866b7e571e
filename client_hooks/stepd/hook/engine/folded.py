"""What can be computed before a graph runs: Grappler does, and folds it into constants. Pure."""

from __future__ import annotations

import weakref

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.graphview import GraphView, Node

_found: weakref.WeakKeyDictionary[GraphView, frozenset[str]] = weakref.WeakKeyDictionary()


def constants(view: GraphView) -> frozenset[str]:
    """The ops that can be computed before the graph runs, looked for once. Shapes may be known then, so they count."""
    kept = _found.get(view)
    if kept is None:
        kept = _found[view] = _made_of(view, {name for name, node in view.nodes.items() if node.op in rules.OF_SHAPES})
    return kept


def certain(view: GraphView) -> frozenset[str]:
    """Those of them that are made of constants alone, whatever is known of shapes."""
    return _made_of(view, set())


def _made_of(view: GraphView, known: set[str]) -> frozenset[str]:
    """Constants, also those that wait for something, `known`, and what is computed of nothing else."""
    found = known | {name for name, node in view.nodes.items() if node.op == "Const"}
    stack = list(found)
    while stack:
        for name in view.consumers[stack.pop()]:
            node = view.nodes[name]
            if name not in found and _folds(node) and all(source in found for source, k in node.inputs if k >= 0):
                found.add(name)
                stack.append(name)
    return frozenset(found)


def _folds(node: Node) -> bool:
    """Does Grappler compute such an op ahead when it knows what it is given?"""
    if node.op in rules.CONTROL_FLOW | rules.UNMOVED or not any(k >= 0 for _, k in node.inputs):
        return False
    return graphview.op_def(node.op) is not None and not graphview.is_stateful(node.op) and not graphview.function_attrs(node.op)
