"""How an order edge is tied into the graph without Grappler computing anything else than before. Pure.

Grappler fuses and rearranges neighbours only when no control edge hangs on them, and fused kernels may round differently. The sets
of ops that it may join are known (`Classes.groups`): a device border may lie around them, and so may a node of ours. An edge from
or to such a set is tied to a node that is put on a tensor that leaves or enters it. It is a PlaceholderWithDefault, which
hands its input on as it is and which Grappler lets be, since it might be fed; identities it takes out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from tensorflow.core.framework import types_pb2

from stepd.hook.engine import rules
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.graphview import GraphView, input_types, output_types

# The order of terms is decided by their names, and where a sum begins by who holds their buffers: no node goes between.
_SUMS = frozenset({"Add", "AddV2", "AddN", "AccumulateNV2", "Mul", "Sub"})
FLOATS = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_DOUBLE, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})


@dataclass(frozen=True)
class Tie:
    """`signal`: the op whose end counts, `tap`: (reader, its input) between which a node tells of it; None: the op itself tells.

    `gate`: the input of the op that waits on which a node is put that waits for it; -1: the op itself.
    """

    signal: str
    tap: tuple[str, int] | None
    gate: int


def tie(
    view: GraphView, classes: Classes, before: str, after: str, run: Collection[str], may_signal: Callable[[str], bool]
) -> Tie | None:
    """A way to have `after` wait for `before`; None when there is none that leaves all rounding alone.

    `run`: ops that some step executes; no others are touched.
    """
    group = classes.group_of.get(before)
    if group is not None and group == classes.group_of.get(after):
        return None
    gate = -1 if after not in classes.group_of and view.nodes[after].op not in _SUMS else _gate(view, classes, after)
    if gate is None:
        return None
    if group is None:
        return Tie(before, None, gate) if view.nodes[before].op not in _SUMS and may_signal(before) else None
    seen, queue = {before}, [before]
    for name in queue:  # it grows: from `before` on through its group, the nearest first
        if not may_signal(name):
            continue
        tap = _tap(view, classes, name, run)
        if tap is not None and tap[0] != after:
            return Tie(name, tap, gate)
        for reader in view.consumers[name]:
            if classes.group_of.get(reader) == group and reader not in seen:
                seen.add(reader)
                queue.append(reader)
    return None


def _gate(view: GraphView, classes: Classes, name: str) -> int | None:
    """An input of floats from outside of the op's group that is neither a constant nor a variable."""
    node, group = view.nodes[name], classes.group_of.get(name)
    if node.op in _SUMS:
        return None
    types = input_types(node.proto)
    for position, (source, index) in enumerate(node.inputs):
        other = view.nodes[source]
        if (
            index >= 0
            and position < len(types)
            and types[position] in FLOATS
            and other.op != "Const"
            and not rules.works_on_variable(other.op)
            and other.op not in rules.CONTROL_FLOW
            and (group is None or classes.group_of.get(source) != group)
        ):
            return position
    return None


def _tap(view: GraphView, classes: Classes, name: str, run: Collection[str]) -> tuple[str, int] | None:
    """A reader outside of the op's group, and its input, between which a node may be put."""
    group = classes.group_of.get(name)
    types = output_types(view.nodes[name].proto)
    for reader in view.consumers[name]:
        node = view.nodes[reader]
        if reader not in run or classes.group_of.get(reader) == group or node.op in _SUMS or node.op in rules.CONTROL_FLOW:
            continue
        for position, (source, index) in enumerate(node.inputs):
            if source == name and 0 <= index < len(types) and types[index] in FLOATS:
                return reader, position
    return None
