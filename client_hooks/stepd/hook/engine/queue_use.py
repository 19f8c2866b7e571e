"""What a step does with queues: which ones it fills and empties, and whether anything else could keep it from ending. Pure.

It must not know sessions or what the queues hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from stepd.hook.arrays import array_of
from stepd.hook.engine import op_defs, queues, rules
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.order.steps import executed
from stepd.hook.ports import StepKind

_TAKES = frozenset({"QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2"})
_PUTS = frozenset({"QueueEnqueueV2", "QueueEnqueueManyV2"})
_LOOKS = frozenset({"QueueSizeV2", "QueueIsClosedV2", "QueueIsClosed"})
# Stateful, and done in a time of their own. An iterator that a restart can carry has no Python function in it.
_END = rules.WITHOUT_MEMORY | _TAKES | _PUTS | _LOOKS | {"IteratorGetNext", "IteratorGetNextSync", "IteratorV2", "OneShotIterator"}
_END_PREFIXES = ("LookupTable", "HashTable", "MutableHashTable", "MutableDenseHashTable")
# Their end may depend on the program's other threads, or on another step.
_MAY_WAIT = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless", "ConsumeMutexLock", "Abort", "Enter", "RefEnter"})


class Put(NamedTuple):
    """An op that puts into a queue. `queue`: the op that stands for it; `first`: the first tensor that it puts, (op, output)."""

    op: str
    queue: str
    many: bool
    first: tuple[str, int]


class Use(NamedTuple):
    """`takes`: queue -> elements, of what a step takes from queues. `ends`: does nothing but queues keep it from ending?

    `put`: what it puts, where that is one op whose elements another could put in its place.
    """

    takes: Mapping[str, int]
    fills: frozenset[str]
    put: Put | None
    ends: bool


def use_of(view: GraphView, step: StepKind, stand_ins: Mapping[str, str]) -> Use:
    """What a run of `step` does with queues. `stand_ins`: queue op -> the op that stands for its queue."""
    ran = executed(view, step)
    takes: dict[str, int] = {}
    puts: list[Put] = []
    ends = True
    fills = set()
    for node in (view.nodes[name] for name in ran):
        if node.op in _TAKES | _PUTS:
            queue = stand_ins.get(node.inputs[0][0])
            if queue is None:
                ends = False
            elif node.op in _TAKES:
                takes[queue] = takes.get(queue, 0) + _elements(view, node)
            else:
                fills.add(queue)
                puts.append(Put(node.name, queue, "Many" in node.op, node.inputs[1]))
        ends = ends and _ends(node)
    if not puts:
        return Use(takes, frozenset(), None, ends)
    alone = len(puts) == 1 and puts[0].queue not in takes and not _followed(view, ran, puts[0])
    return Use(takes, frozenset(fills), puts[0] if alone else None, ends and alone)


def _elements(view: GraphView, node: Node) -> int:
    if node.op == "QueueDequeueV2":
        return 1
    count = view.nodes[node.inputs[1][0]]
    # How many is computed: more than there can be, then.
    return int(np.max(array_of(count.proto.attr["value"].tensor))) if count.op == "Const" else 1 << 31


def _ends(node: Node) -> bool:
    op = node.op
    if op in _MAY_WAIT or op_defs.op_def(op) is None:
        return False
    if op in _END or op in rules.VARIABLES or rules.works_on_variable(op) or queues.carriable(node):
        return True
    if op_defs.function_attrs(op):
        return op == "OneShotIterator"
    attr = node.proto.attr
    return not op_defs.is_stateful(op) or "seed" in attr or op.startswith(_END_PREFIXES) or op.startswith("Placeholder")


def _followed(view: GraphView, ran: Collection[str], put: Put) -> bool:
    """Does anything happen behind it that would come too early when it ends before there is room?"""
    later = (view.descendants([put.op]) - {put.op}) & set(ran)
    return any(op_defs.is_stateful(view.nodes[name].op) for name in later)
