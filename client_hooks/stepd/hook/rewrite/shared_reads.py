"""Reads of one variable that a copy of the graph makes once, for all updates that ask for it. Pure.

Adam reads the powers of its betas anew for every variable that it updates. On another device than the powers, each of these
reads is a transfer of a few bytes in every step: two a variable. In a copy all those updates take what one of the reads gives.
Reads count as one only where nothing but updates asks for them, which take numbers by their value: an op that computes might find
its input's memory in other hands, and add up in another order. It must not know strategies or how copies are made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView, Node, split_input
from stepd.hook.ports import StepKind

_UPDATES = ("ResourceApply", "ResourceSparseApply")
_OF_NO_CONCERN = ("_class", "_output_shapes")  # where it lies, which its variable says, and what it gives


class Share(NamedTuple):
    """`by` reads what `op` would read at the same time: the same variable, waiting for the same."""

    op: str
    by: str


Shares = frozenset[Share]
NOTHING: Shares = frozenset()


def shareable(view: GraphView, classes: Classes) -> Shares:
    """The reads that others can make as well, in steps of any kind that `serves` says yes to."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, node in view.nodes.items():
        if node.op == "ReadVariableOp" and name not in classes.pinned and _is_for_updates(view, node):
            source, *awaited = node.inputs
            alike.setdefault((source, frozenset(awaited), node.proto.attr["dtype"].type, _marks(node)), []).append(name)
    return frozenset(Share(name, first) for first, *others in alike.values() for name in others)


def _marks(node: Node) -> frozenset[tuple[str, bytes]]:
    """What others than its kernel are told about an op: XLA, say, which compiles a scope as a whole."""
    attrs = node.proto.attr
    return frozenset(
        (name, attrs[name].SerializeToString()) for name in attrs if name.startswith("_") and name not in _OF_NO_CONCERN
    )


def _is_for_updates(view: GraphView, node: Node) -> bool:
    """Does it read the variable itself, once, and is it read by updates alone?"""
    variable, *awaited = node.inputs
    readers = [user for user in view.consumers[node.name] if (node.name, -1) not in view.nodes[user].inputs]
    return (
        view.nodes[variable[0]].op == "VarHandleOp"
        and all(index < 0 for _, index in awaited)
        and bool(readers)
        and all(view.nodes[user].op.startswith(_UPDATES) for user in readers)
    )


def without(view: GraphView, shares: Iterable[Share]) -> GraphView:
    """The graph as a copy has it in which these reads are made by others."""
    by = {share.op: share.by for share in shares}
    if not by:
        return view
    nodes = dict(view.nodes)
    for name in by:
        for user in view.consumers[name]:
            nodes[user] = nodes[user]._replace(inputs=tuple(_read(source, index, by) for source, index in nodes[user].inputs))
    return GraphView(nodes, view.functions)


def _read(source: str, index: int, by: dict[str, str]) -> tuple[str, int]:
    return (by.get(source, source) if index >= 0 else source), index


def serve(shares: Iterable[Share], step: StepKind, executed: Collection[str]) -> bool:
    """Whether a step that executes these ops reads the same, as long as all that it reads and writes has an order.

    It may not be fed in the place of any read that is shared. Nor may it fetch a read that others make as well: no update waits for
    that one any more, so that it may come after the variable is written.
    """
    fed, fetched = ({split_input(name)[0] for name in names} for names in (step.feeds, step.fetches))
    return not any(share.op in fed or share.op in fetched or (share.by in fed and share.op in executed) for share in shares)
