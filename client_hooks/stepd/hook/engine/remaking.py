"""Data sets that are other data sets when a new session makes them again. Pure.

An iterator is carried as its place in its data set, and the data set is made again from the ops above its MakeIterator: they must
give what they gave when the old session made it. A place within the parts of a `flat_map` or an `interleave` is carried as the
element that the part was made of, and the function is called with it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tensorflow.core.framework import types_pb2

from stepd.hook.engine import graphview, op_defs, rules
from stepd.hook.engine.graphview import GraphView

TABLES = frozenset({"HashTableV2"})  # whose words never change
ITERATORS = frozenset({"IteratorV2", "OneShotIterator"})
_GIVEN = frozenset({"Placeholder", "PlaceholderV2"})
# What they read, rules.MADE_ONCE too, changes, or may take its time to be there again.
_READS_THE_WORLD = rules.MADE_ONCE | {"DatasetToSingleElement", "ReduceDataset"}
_GIVE_NOTHING = rules.CHECKS | {"NoOp", "Print", "PrintV2"}
# Those whose function gives a data set.
_OF_PARTS = frozenset({
    "FlatMapDataset", "IndexFlatMapDataset", "InterleaveDataset", "ParallelInterleaveDataset", "ParallelInterleaveDatasetV2",
    "ParallelInterleaveDatasetV3", "ParallelInterleaveDatasetV4", "LegacyParallelInterleaveDatasetV2", "GroupByWindowDataset",
    "ExperimentalParallelInterleaveDataset", "ExperimentalGroupByWindowDataset",
})  # fmt: skip


def made_otherwise(view: GraphView, iterator: str, makers: Iterable[str], fed: Collection[str]) -> str:
    """The op above `makers` that may give something else than when `iterator` was made; "" when none may. `fed`: ops that the
    program has fed."""
    above = view.ancestors(makers) - {*makers, iterator}
    changing = (name for name in view.nodes if name in above and (name in fed or not _gives_the_same(view, view.nodes[name].proto)))
    at_top = next(changing, "")
    if at_top or view.nodes[iterator].op != "OneShotIterator":
        return at_top
    factory = view.functions.get(view.nodes[iterator].proto.attr["dataset_factory"].func.name)
    inside = () if factory is None else factory.node_def
    return next((str(node.name) for node in inside if not _gives_the_same(view, node)), "")


def needs(view: GraphView, owner: str) -> str:
    """An op that runs whenever the `owner` of a state is asked for it, and may do or give something else then; "" if none does."""
    above = view.ancestors([owner]) - {owner}
    return next((name for name in view.nodes if name in above and not _gives_the_same(view, view.nodes[name].proto)), "")


def reads_files_once(view: GraphView) -> list[str]:
    """MakeIterator ops of data sets made of what files or Python functions say. TensorFlow asks those when it builds the step, once
    for all times that it makes the iterator: a copy of the step would ask them again.
    """
    makers = [node.name for node in view.nodes.values() if node.op == "MakeIterator"]
    readers = [node.name for node in view.nodes.values() if node.op in rules.MADE_ONCE] if makers else []
    return sorted(view.descendants(readers).intersection(makers)) if readers else []


def parts_made_otherwise(view: GraphView, node: graphview.Node) -> str:
    """What a function that gives the parts of a data set may read, and that changes; "" when there is nothing of the kind."""
    inners = (inner.op for body in view.bodies(node.proto) for inner in body.node_def)
    if node.op not in _OF_PARTS and _OF_PARTS.isdisjoint(inners):
        return ""
    given = [source for source, index in node.inputs if index >= 0 and _is_handle(view, source, index)]
    return next((owner for owner in (_owner(view, name) for name in given) if view.nodes[owner].op not in TABLES), "")


def _gives_the_same(view: GraphView, node: Any) -> bool:
    if op_defs.op_def(node.op) is None:
        return False
    bodies = [inner for body in view.bodies(node) for inner in body.node_def]
    outputs = op_defs.output_types(node)
    if outputs and "Dataset" in node.op and all(kind == types_pb2.DT_VARIANT for kind in outputs):
        return True  # its functions run when elements are wanted
    if op_defs.is_stateful(node.op):
        is_handle = bool(outputs) and all(kind == types_pb2.DT_RESOURCE for kind in outputs) and not node.input
        return node.op in _GIVE_NOTHING or (is_handle and node.op not in ITERATORS)
    reads = any(map(_is_state, op_defs.input_types(node)))
    return not reads and node.op not in _GIVEN | _READS_THE_WORLD and all(_gives_the_same(view, inner) for inner in bodies)


def _is_state(kind: int) -> bool:
    return op_defs.is_ref(kind) or kind == types_pb2.DT_RESOURCE


def _is_handle(view: GraphView, name: str, index: int) -> bool:
    kinds = op_defs.output_types(view.nodes[name].proto)
    return index < len(kinds) and _is_state(kinds[index])


def _owner(view: GraphView, name: str) -> str:
    """The op whose state the handle `name` stands for, where ops only hand it on."""
    while view.nodes[name].op in ("Identity", "Enter") and view.nodes[name].inputs:
        name = view.nodes[name].inputs[0][0]
    return name
