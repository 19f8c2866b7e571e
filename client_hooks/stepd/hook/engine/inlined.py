"""Who must lie where a function's body is put inline, because Grappler rewrites it together with ops of the body. Pure.

A body comes to lie where its call does. What is looked at is whether there is an op of a kind in it at all, not where: calls are
few in graphs of sessions, and stay. It must not know what else moves together.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepd.hook.engine import calls, graphview, rules, unchanged
from stepd.hook.engine.graphview import GraphView, Node

_PAIRS = rules.FUSED + rules.FUSED_IF_SOLE_READER + tuple((ops, ops) for ops in rules.PUSHED_DOWN)
_PUSHED = frozenset[str]().union(*rules.PUSHED_DOWN)


def neighbours(view: GraphView, call: Node) -> Iterator[str]:
    """The ops that `call` is given, or that are given what it makes, of which its body's ops may become one kernel, or which may
    change places with them; with what they are given themselves where a constant may be pushed down into them."""
    if call.op not in rules.INLINED or calls.runs_as_one(call.proto):
        return
    inside = {inner.op for body in view.bodies(call.proto) for inner in body.node_def}
    for source, k in call.inputs:
        for producer, between in unchanged.behind_names(view, source, k) if k >= 0 else ():
            if _meet({producer.op}, inside):
                yield from (producer.name, *between, *_given(producer))
    for name, between in _readers(view, call.name):
        if _meet(inside, {view.nodes[name].op}):
            yield from (name, *between, *_given(view.nodes[name]))


def _meet(before: set[str], behind: set[str]) -> bool:
    return any(before & first and behind & second for first, second in _PAIRS)


def _given(node: Node) -> Iterator[str]:
    yield from (source for source, k in node.inputs if k >= 0 and node.op in _PUSHED)


def _readers(view: GraphView, name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Who takes a value of `name`, and through which ops that may only hand it on."""
    stack: list[tuple[str, tuple[str, ...]]] = [(name, ())]
    while stack:
        one, between = stack.pop()
        for user in graphview.takers(view, one):
            yield user, between
            if behind := unchanged.handed_on(view, view.nodes[user]):
                stack.append((user, (*between, *behind[1])))
