"""Calls of functions that stay calls in the graph that runs. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from stepd.hook.engine import draws, op_defs, rules
from stepd.hook.engine.graphview import GraphView, Node

CHECKING = rules.CHECKS | {"NoOp", "Placeholder"}


def draws_apart(view: GraphView, node: Any) -> str:
    """Why a step that calls this function must keep its executors for good; "" when it need not.

    TensorFlow keeps the place in a random stream for the session where the op is in the graph, also when it came there because a
    function was inlined. A function that runs as one keeps its streams with the executors of each step.
    """
    functions = op_defs.function_attrs(node.op)
    if functions == () or (functions and ("Dataset" in node.op or node.op == "OneShotIterator")):  # iterators have their own
        return ""
    bodies = view.bodies(node)
    apart = runs_as_one(node) or any(is_kept(body) or any(map(runs_as_one, body.node_def)) for body in bodies)
    for body in bodies if apart else ():
        if any(map(draws.is_seeded, body.node_def)):
            return f"{node.name} calls {body.signature.name}, whose random numbers each step draws from a stream of its own"
    return ""


def draws_by_number(view: GraphView) -> str:
    """Why no loop or condition may be copied beside a stream whose name numbers all of them; "" where there is none, or no other.

    TensorFlow gives the bodies of loops and conditions of the second generation a number each as it puts them in the place of
    their ops, those in functions after all others of the graph, and keeps a random stream for the session by the name that comes
    of it: with one more of them in the graph the stream begins anew.
    """
    streams, others = "", False
    for node in view.nodes.values() if view.functions else ():
        if op_defs.function_attrs(node.op) == () or "Dataset" in node.op:
            continue
        within = [inner for body in view.bodies(node.proto) for inner in body.node_def]
        if not any(map(draws.is_seeded, within)):
            others |= _is_numbered(node.proto) or any(map(_is_numbered, within))
            continue
        for inner in filter(_is_numbered, within):
            if not streams and any(draws.is_seeded(each) for body in view.bodies(inner) for each in body.node_def):
                streams = f"{node.name} draws from a seeded random stream in {inner.name}, a loop or condition in a function"
    return f"{streams}, beside others" if streams and others else ""


def _is_numbered(node: Any) -> bool:
    return "_lower_using_switch_merge" in node.attr and not runs_as_one(node)


def runs_as_one(node: Any) -> bool:
    """Does this call, if it is one, stay a call in the graph that runs?"""
    functions, attr = op_defs.function_attrs(node.op), node.attr
    if functions == ():
        return False
    if any(key in attr and attr[key].b for key in ("_noinline", "_XlaMustCompile")):
        return True
    lowered = "_lower_using_switch_merge" in attr and attr["_lower_using_switch_merge"].b
    return functions is not None and not lowered and node.op not in rules.INLINED


def is_kept(body: Any) -> bool:
    """Does a function ask not to be put inline?"""
    return "_noinline" in body.attr and bool(body.attr["_noinline"].b)


def may_fail_apart(view: GraphView, node: Node) -> bool:
    """Does a function run as one whose error a transfer hides? It ends all transfers of the step before the call itself fails, and
    who waits for one fails first. TensorFlow inlines no function with a check in it.
    """
    if op_defs.function_attrs(node.op) == () or "Dataset" in node.op:
        return False
    return runs_as_one(node.proto) or any(map(is_kept, view.bodies(node.proto))) or has_checks(view, node)


def only_computes(view: GraphView, node: Node, besides: Collection[str] = CHECKING) -> bool:
    """Does an op, or a function that it calls, nothing but compute and check? `besides`: op types that are allowed as well."""
    if op_defs.function_attrs(node.op) == ():
        return node.op in besides or op_defs.is_pure(node.op)
    inner = [each.op for body in view.bodies(node.proto) for each in body.node_def]
    return bool(inner) and all(op in besides or op_defs.is_pure(op) or op_defs.function_attrs(op) != () for op in inner)


def has_checks(view: GraphView, node: Node) -> bool:
    """Does a function that an op calls check anything, so that TensorFlow does not inline it?"""
    if op_defs.function_attrs(node.op) == () or "Dataset" in node.op:
        return False
    return any(inner.op in rules.CHECKS for body in view.bodies(node.proto) for inner in body.node_def)
