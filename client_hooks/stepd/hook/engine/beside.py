"""Which ops of a step, that none of its updates needs, may fail of what they are given. Pure.

Layers and gradients are full of these, where they suit each other; beside them a program asks for what it is given itself: a slice,
a range, so many copies. It must not know what waits for whom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tensorflow.python.framework import tensor_util

from stepd.hook.engine.fitting import MEETING, Shapes, may_not_fit
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.inside import bodies, functions, looks_at_what_it_is_given
from stepd.hook.order.ties import FLOATS

# The inputs that may not suit: where to begin, how many, which axis, which places, texts.
_INPUTS = {
    "Slice": (1, 2), "StridedSlice": (1, 2, 3), "Tile": (1,), "Fill": (0,), "Range": (0, 1, 2), "LinSpace": (2,), "OneHot": (1,),
    "Reshape": (1,), "BroadcastTo": (1,), "ExpandDims": (1,), "Transpose": (1,), "InvertPermutation": (0,), "Roll": (1, 2),
    "Pad": (1,), "PadV2": (1,), "Split": (0,), "SplitV": (1, 2), "Cumsum": (1,), "Cumprod": (1,), "ReverseV2": (1,),
    "ArgMax": (1,), "ArgMin": (1,), "Sum": (1,), "Mean": (1,), "Max": (1,), "Min": (1,), "Prod": (1,), "All": (1,), "Any": (1,),
    "RandomUniformInt": (1, 2), "Multinomial": (1,), "TensorScatterUpdate": (1,), "TensorScatterAdd": (1,),
    "SparseSegmentSum": (1, 2), "SparseSegmentMean": (1, 2), "SparseSegmentSqrtN": (1, 2), "SegmentMin": (1,), "SegmentProd": (1,),
    "UnsortedSegmentSum": (2,), "UnsortedSegmentMax": (1, 2), "DynamicStitch": (0, 1), "ParallelDynamicStitch": (0, 1),
    "SpaceToBatchND": (1, 2), "BatchToSpaceND": (1, 2), "UnicodeDecode": (0,), "UnicodeDecodeWithOffsets": (0,),
    "UnicodeTranscode": (0,), "RegexReplace": (1,), "RegexFullMatch": (1,), "SparseFillEmptyRows": (0,), "SparseAdd": (0, 3),
    "ResizeBilinear": (1,), "ResizeNearestNeighbor": (1,), "ResizeBicubic": (1,), "Pow": (1,), "Bincount": (0, 1),
    "HistogramFixedWidth": (1,), "TensorArrayReadV3": (1,), "TensorArrayWriteV3": (1,), "TensorListGetItem": (1,),
    "TensorListSetItem": (1,), "TensorArrayGatherV3": (1,), "IteratorFromStringHandleV2": (0,), "AudioSummaryV2": (2,),
    "BatchDatasetV2": (1,), "ShuffleDatasetV3": (1,),
}  # fmt: skip
_IN_FUNCTIONS = {op: places for op, places in _INPUTS.items() if not op.startswith("TensorList") and op != "Pow"}


def beside(view: GraphView, order: Sequence[str], updates: Iterable[str]) -> frozenset[str]:
    """What of a step, whose ops can run in this `order`, none of `updates` needs."""
    needed = set(updates)
    for name in reversed(order):
        if name in needed:
            needed.update(source for source, _ in view.nodes[name].inputs)
    return frozenset(order) - needed


def inputs(view: GraphView, name: str, shapes: Shapes) -> tuple[int, ...]:
    """The inputs of an op that it, or a function that it calls, may fail of."""
    node = view.nodes[name]
    if any(_asks(function) for function in functions(view, name)) or _meet_inside(view, node, shapes):
        return tuple(range(len(node.inputs)))
    unfit = may_not_fit(view, name, shapes)
    if unfit or (node.op == "Pow" and node.proto.attr["T"].type in FLOATS):
        return unfit
    if node.op in ("ConcatV2", "SparseConcat"):
        many = node.proto.attr["N"].i
        return (many,) if node.op == "ConcatV2" else tuple(range(2 * many, 3 * many))
    if node.op == "MergeSummary":
        return tuple(k for k, (source, _) in enumerate(node.inputs) if not _is_tagged(view, view.nodes[source]))
    return (0, *_INPUTS[node.op]) if node.op == "Reshape" and not _fits(view, node, shapes) else _INPUTS.get(node.op, ())


def _asks(function: Any) -> bool:
    """Asks a function where to begin, say, of what it is given? Elements of lists are there, one for each round."""
    return looks_at_what_it_is_given(function, _IN_FUNCTIONS)


def _meet_inside(view: GraphView, node: Node, shapes: Shapes) -> bool:
    """Is a function given sizes that are not known, and may others meet them there?"""
    meet = any(inner.op in MEETING for inner in bodies(view, node.name))
    return meet and any(-1 in (shapes(*read) or ()) for read in node.inputs if read[1] >= 0)


def _is_tagged(view: GraphView, summary: Node) -> bool:
    """Is it sure which tag a summary has? Those of two that are merged may be one."""
    tags = [view.nodes[source].op for source, _ in summary.inputs[:1]]
    return summary.op == "MergeSummary" or ("Summary" in summary.op and tags == ["Const"])


def _fits(view: GraphView, reshape: Node, shapes: Shapes) -> bool:
    """Is it sure that there are as many elements as a constant shape asks for?"""
    given, wanted = shapes(*reshape.inputs[0]), view.nodes[reshape.inputs[1][0]]
    if given is None or wanted.op != "Const":
        return False
    dims = [int(dim) for dim in tensor_util.MakeNdarray(wanted.proto.attr["value"].tensor).reshape(-1)]
    known, asked = (math.prod(dim for dim in each if dim >= 0) for each in (given, dims))
    return known == asked if -1 not in dims else asked > 0 and known % asked == 0
