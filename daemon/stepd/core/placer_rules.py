"""Which ops TensorFlow's placer keeps on one device, whatever the user or a planner asks.

Because of `_class`, because of a resource or a reference that one of them holds, or because they run in one frame of a while
loop. It knows nodes and nothing of costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stepd.core.problem import CONTROL, Index

if TYPE_CHECKING:
    from stepd.core.graph import Node

# Output 0 of these is a resource handle, and of ops with these suffixes; identity-like ops hand it on.
_RESOURCE_SOURCES = frozenset(
    {"TensorArrayV3", "TensorArrayGradV3", "StackV2", "Iterator", "OneShotIterator", "MutexV2"} | {"ResourceConditionalAccumulator"}
)
_RESOURCE_SUFFIXES = ("HandleOp", "TableV2", "QueueV2", "IteratorV2", "ReaderV2")
_RESOURCE_PASSES = frozenset({"Identity", "Enter", "Exit", "Switch", "Merge", "NextIteration"})
# Calls whose bodies TensorFlow places op by op: a handle may enter them from any device.
_MULTI_DEVICE_CALLS = frozenset(
    {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If", "StatelessIf"} | {"Case", "StatelessCase"}
)
# Outputs that are references. A variable may be read from afar (its value is sent), a queue or a table may
# not.
REFERENCE_VARIABLES = frozenset({"Variable", "VariableV2", "TemporaryVariable"})
_REF_CONTAINERS = frozenset(
    {"FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue", "HashTable", "MutableHashTable"}
    | {"Barrier", "Stack", "ConditionalAccumulator", "SparseConditionalAccumulator"}
    | {"TextLineReader", "TFRecordReader", "WholeFileReader"}
)
_REF_UPDATE_PREFIXES = ("Assign", "Scatter", "Apply", "SparseApply", "Ref")
_REF_UPDATES = frozenset({"CountUpTo", "IsVariableInitialized", "DestroyTemporaryVariable", "StridedSliceAssign"})


def groups(n: int, pairs: Iterable[tuple[int, int]]) -> Index:
    """Numbers of the sets that `pairs` join (0-based, by first member); -1 for an op in none."""
    parent = list(range(n))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for i, j in pairs:
        a, b = root(i), root(j)
        parent[max(a, b)] = min(a, b)
    roots = [root(i) for i in range(n)]
    sizes = np.bincount(roots, minlength=n)
    number = {r: k for k, r in enumerate(dict.fromkeys(r for r in roots if sizes[r] > 1))}
    return np.array([number.get(r, -1) for r in roots], dtype=np.int32)


def class_pairs(nodes: Sequence[Node], index: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """(op, the op it is to share a device with) of every `_class` attribute."""
    stand_in: dict[str, int] = {}  # an op that is not in this graph: its followers still share a device
    for i, node in enumerate(nodes):
        for other in node.colocate_with:
            yield i, index[other] if other in index else stand_in.setdefault(other, i)


def handle_pairs(
    nodes: Sequence[Node], inputs: Sequence[Sequence[tuple[int, int]]], order: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """(consumer, producer) of every resource or reference that the placer keeps on one device."""
    resources: set[int] = set()
    references: set[int] = set()
    for i in order:
        op = nodes[i].op
        if op in _RESOURCE_SOURCES or op.endswith(_RESOURCE_SUFFIXES):
            resources.add(i)
        elif op in REFERENCE_VARIABLES:
            references.add(i)
        updates = op in _REF_UPDATES or op.startswith(_REF_UPDATE_PREFIXES)
        for j, output in inputs[i]:
            if output == CONTROL:
                continue
            resource = j in resources and (output == 0 or nodes[j].op == "Switch")
            reference = j in references and updates
            if resource and op in _RESOURCE_PASSES:
                resources.add(i)
            if reference:
                references.add(i)  # an update hands its variable's reference on
            if reference or nodes[j].op in _REF_CONTAINERS or (resource and op not in _MULTI_DEVICE_CALLS):
                yield i, j


def frame_pairs(
    nodes: Sequence[Node], inputs: Sequence[Sequence[tuple[int, int]]], order: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Ties the ops of a loop, its Enter and Exit ops and the loops inside it, to the first of them."""
    frames: list[tuple[str, ...]] = [()] * len(nodes)
    first: dict[str, int] = {}
    for i in order:
        node = nodes[i]
        inside = max((frames[j] for j, _ in inputs[i]), key=len, default=())
        if node.op in ("Enter", "RefEnter"):
            inside = (*inside, node.frame_name)
        if inside:
            yield i, first.setdefault(inside[0], i)
        frames[i] = inside[:-1] if node.op in ("Exit", "RefExit") else inside
