"""Which ops of a step may fail: they are there for it, look at values, or are where two batches meet. Pure.

Any op may fail of what it is given; these do in programs that go on afterwards. It must not know what waits for whom.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple

from stepd.hook.engine import rules
from stepd.hook.engine.beside import beside, inputs
from stepd.hook.engine.fitting import Shapes, may_not_take
from stepd.hook.engine.graphview import GraphView, Node, split_input
from stepd.hook.engine.inside import OF_A_SHAPE, bodies, functions, looks_at_what_it_is_given
from stepd.hook.engine.op_defs import is_stateful
from stepd.hook.order.ties import FLOATS
from stepd.hook.ports import StepKind

FAILING = rules.CHECKS | {
    "IteratorGetNext", "IteratorGetNextSync", "PyFunc", "EagerPyFunc", "PyFuncStateless",
    "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2", "ReaderReadV2", "ReaderReadUpToV2", "BarrierTakeMany",
    "OptionalGetValue", "IteratorGetNextAsOptional", "DatasetToSingleElement", "ReduceDataset",
    "QueueEnqueueV2", "QueueEnqueueManyV2", "CountUpTo", "ResourceCountUpTo", "LookupTableFindV2", "GetSessionTensor",
    "Restore", "RestoreSlice", "RestoreV2",
}  # fmt: skip
VALUE = "OptionalGetValue"  # in functions mostly of gradients, which take what the branch before them has put there
_SCATTERS = frozenset(
    f"{kind}Scatter{what}"
    for kind in ("", "Resource")
    for what in ("Update", "Add", "Sub", "Mul", "Div", "Min", "Max", "NdUpdate", "NdAdd", "NdSub", "NdMin", "NdMax")
)
# Of labels, indices, lengths, texts, names of files and matrices -> the inputs that may not suit. Grappler rewrites none of them.
_OF_VALUES = dict.fromkeys(_SCATTERS, (1,)) | {
    "SparseSoftmaxCrossEntropyWithLogits": (1,), "CTCLoss": (1, 2, 3), "CTCBeamSearchDecoder": (1,), "CTCGreedyDecoder": (1,),
    "InTopK": (1,), "InTopKV2": (1,), "TopKV2": (1,), "EditDistance": (0, 1, 3, 4),
    "Gather": (1,), "GatherV2": (1,), "GatherNd": (1,), "ResourceGather": (1,), "ResourceGatherNd": (1,), "ReverseSequence": (1,),
    "ScatterNd": (0,), "SegmentSum": (1,), "SegmentMean": (1,), "SegmentMax": (1,), "SegmentMin": (1,), "SegmentProd": (1,),
    "UnsortedSegmentSum": (1,), "UnsortedSegmentMax": (1,), "UnsortedSegmentMin": (1,), "UnsortedSegmentProd": (1,),
    "SparseSegmentSum": (1, 2), "SparseSegmentMean": (1, 2), "SparseSegmentSqrtN": (1, 2), "UnravelIndex": (0,),
    "DenseBincount": (0,), "SparseToDense": (0, 1), "SparseTensorDenseMatMul": (0,), "SparseReshape": (0, 1),
    "DeserializeManySparse": (0,), "DeserializeSparse": (0,), "RaggedRange": (0, 1, 2), "StatelessMultinomial": (1,),
    "DynamicPartition": (1,), "CropAndResize": (2,), "ExtractGlimpse": (1,), "ExtractGlimpseV2": (1,), "ResizeArea": (1,),
    "ResizeBilinear": (1,), "ResizeBicubic": (1,), "ResizeNearestNeighbor": (1,), "QuantizeV2": (1, 2),
    "Cholesky": (0,), "MatrixInverse": (0,), "MatrixSolve": (0,), "SelfAdjointEigV2": (0,),
    "ParseExample": (0,), "ParseExampleV2": (0,), "ParseSingleExample": (0,), "ParseSequenceExample": (0,),
    "ParseSequenceExampleV2": (0,), "ParseTensor": (0,), "DecodeRaw": (0,), "DecodePaddedRaw": (0,), "DecodeCSV": (0,),
    "DecodeJSONExample": (0,), "DecodeCompressed": (0,), "DecodeJpeg": (0,), "DecodeAndCropJpeg": (0, 1), "DecodePng": (0,),
    "DecodeGif": (0,), "DecodeBmp": (0,), "DecodeImage": (0,), "DecodeWav": (0,), "DecodeBase64": (0,),
    "StringToNumber": (0,), "Substr": (1, 2), "ReadFile": (0,), "MatchingFiles": (0,), "HistogramSummary": (1,),
    "EnsureShape": (0,),
    "Div": (1,), "FloorDiv": (1,), "TruncateDiv": (1,), "Mod": (1,), "FloorMod": (1,), "TruncateMod": (1,),
}  # fmt: skip
_OF_INTEGERS = frozenset({"Div", "FloorDiv", "TruncateDiv", "Mod", "FloorMod", "TruncateMod"})  # of others they never fail
# Which values come out says nothing of those that were given.
_BOUNDED = frozenset({"LookupTableFindV2", "StringToHashBucketFast", "StringToHashBucketStrong"})
# What gradients have, too, where the look-up before has found the same good.
_OF_GRADIENTS = frozenset({
    "ReverseSequence", "ScatterNd", "SegmentSum", "SegmentMean", "UnsortedSegmentSum", "MatrixSolve", "SparseTensorDenseMatMul",
}) | _SCATTERS  # fmt: skip
# Of which a function that has one in it fails. Others are in those that gradients call, too, and in what is done to shapes.
_GATHERS = frozenset({"Gather", "GatherV2", "GatherNd", "ResourceGather", "ResourceGatherNd"})
_LOOKED_UP = dict.fromkeys(_GATHERS | _SCATTERS, (1,))
_IN_FUNCTIONS = frozenset(_OF_VALUES) - _OF_GRADIENTS - _GATHERS - _OF_INTEGERS - {"TopKV2", "EnsureShape"}
_HANDING = frozenset({"Identity", "Reshape", "ExpandDims", "Squeeze", "Cast", "StridedSlice", "Unique", "UniqueV2"})
# Where labels and predictions meet, which may be of two sizes.
_OF_SIZES = frozenset({"SoftmaxCrossEntropyWithLogits", "Sub", "SquaredDifference", "Mul"})
_MOST_BESIDE = 1_000  # pairs of updates and what none of them needs
_OF_SHAPES = OF_A_SHAPE | frozenset({"Const", "ZerosLike", "OnesLike", "BroadcastGradientArgs"})


class Fallible(NamedTuple):
    """The `ends` of a step: ops that are there to fail, and those that fail of what they are given. `unsure`: all of these, and
    those that all updates need. `alike`: pairs of one of the ends and an op that fails with it."""

    ends: list[str]
    unsure: list[str]
    alike: list[tuple[str, str]]


def fallible(
    view: GraphView, step: StepKind, order: Sequence[str], updates: Sequence[str], most: int, shapes: Shapes = lambda *_: None
) -> Fallible:
    """What may fail of a step whose ops can run in this `order`, and is not needed by all `updates`. Of more than `most` pairs of
    both there are so many: what ends a loop over data comes first, then checks, then what is given something."""
    fed = {split_input(name) for name in step.feeds}
    unneeded = beside(view, order, updates)
    sizes = _of_sizes(view, order, fed, shapes, unneeded)
    suiting = {name: inputs(view, name, shapes) if name in unneeded else () for name in order}
    suiting = {name: found or may_not_take(view, name, shapes) for name, found in suiting.items()}
    there, unsure = _failing(view, order), [*dict.fromkeys((*_of_values(view, order, fed, suiting), *sizes))]
    failing, given = _not_needed(view, order, there, updates), _not_needed(view, order, unsure, updates)
    usual = [name for name in given if not suiting.get(name)]
    ends = [*sorted(failing, key=lambda name: checks(view, name)), *usual][: most // len(updates)]
    ends += [name for name in given if suiting.get(name)][: min(most // len(updates) - len(ends), _MOST_BESIDE // len(updates))]
    alike = [(end, other) for end in given if end in ends for other in sizes.get(end, ())]
    return Fallible(ends, [*there, *unsure], alike)


def causes(view: GraphView, order: Iterable[str], fed: Collection[tuple[str, int]], ends: Collection[str]) -> dict[str, int]:
    """What each of `ends` may fail of, as a set of bits: values that are fed, their shapes, variables and other state, draws."""
    size = len(fed)
    bits: dict[Any, int] = {each: 1 << k for k, each in enumerate(fed)}
    values = (1 << size) - 1
    bits |= {("shape of", each): bit << size for each, bit in bits.items()}
    behind: dict[str, int] = {}
    found: dict[str, int] = {}
    for name in order:
        node = view.nodes[name]
        reads = [(source, index) for source, index in node.inputs if index >= 0]
        masks = [bits[read] if read in fed else behind.get(read[0], 0) for read in reads]
        if node.op in _BOUNDED:
            masks = []
        own = is_stateful(node.op) or (not reads and node.op != "Const")
        mask = reduce(or_, masks, bits.setdefault(name, 1 << len(bits)) if own else 0)
        behind[name] = (mask & ~values) | (mask & values) << size if node.op in OF_A_SHAPE else mask
        if name in ends:
            looked_at = [masks[k] for k in _OF_VALUES.get(node.op, range(len(masks))) if k < len(masks)]
            found[name] = reduce(or_, looked_at, 0) if node.op in _OF_VALUES else behind[name]
            if node.op in _OF_SIZES:
                found[name] = (mask & values | mask >> size & values) << size
    return found


def _failing(view: GraphView, run: Iterable[str]) -> list[str]:
    return [name for name in run if view.nodes[name].op in FAILING or any(n.op in FAILING - {VALUE} for n in bodies(view, name))]


def _of_values(
    view: GraphView, order: Iterable[str], fed: Collection[tuple[str, int]], suiting: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """What may fail of values that a step is given, draws, or reads; but not the gradient of an op that has found the same good.
    `suiting`: what inputs of which ops may not suit, besides."""
    varied: set[str] = set()
    looked_at: dict[str, frozenset[tuple[str, int]]] = {}  # op -> what has been found good before it
    found = []
    for name in order:
        node = view.nodes[name]
        reads = [(source, index) for source, index in node.inputs if index >= 0]
        vary = [read in fed or read[0] in varied for read in reads]
        if node.op not in _OF_SHAPES and (not reads or any(vary)):
            varied.add(name)
        good = frozenset[tuple[str, int]]().union(*(looked_at.get(source, ()) for source in {s for s, _ in node.inputs}))
        calls = any(map(_looks_at_values, functions(view, name)))
        looks_at = range(len(reads)) if calls else _may_not_suit(node) or suiting.get(name, ())
        suspects = {_behind(view, reads[k]) for k in looks_at if k < len(vary) and vary[k]}
        if suspects and not (node.op in _OF_GRADIENTS and suspects <= good):
            found.append(name)
        if good or suspects:
            looked_at[name] = good | suspects
    return found


def _may_not_suit(node: Node) -> Collection[int]:
    """The inputs of an op that it may fail of."""
    rounds = node.op in _OF_INTEGERS and node.proto.attr["T"].type in FLOATS
    return () if rounds else _OF_VALUES.get(node.op, ())


def _looks_at_values(function: Any) -> bool:
    """Does an op of a function, of what the function is given?"""
    return any(inner.op in _IN_FUNCTIONS for inner in function.node_def) or looks_at_what_it_is_given(function, _LOOKED_UP)


def _behind(view: GraphView, value: tuple[str, int]) -> tuple[str, int]:
    """The value that is handed on, in another shape or type perhaps, or of which this is a part."""
    while value[0] in view.nodes and view.nodes[value[0]].op in _HANDING:
        value = view.nodes[value[0]].inputs[0]
    return value


def _of_sizes(
    view: GraphView, order: Iterable[str], fed: Collection[tuple[str, int]], shapes: Shapes, unneeded: Collection[str]
) -> dict[str, list[str]]:
    """Where what hangs on one fed value of unknown shape first meets what hangs on another, and where the same meet besides. Of
    what is `unneeded` by updates any op is where they do."""
    sizes: dict[str, frozenset[str]] = {
        name: frozenset([name]) for name, index in fed if _is_of_unknown_shape(view, name, shapes(name, index))
    }
    met: dict[frozenset[str], list[str]] = {}
    for name in order:
        reads = [read for read in view.nodes[name].inputs if read[1] >= 0 and read[0] in sizes]
        read = {
            sizes[source] for source, index in reads if view.nodes[source].op in OF_A_SHAPE or not _is_known(shapes(source, index))
        }
        if read:
            sizes[name] = frozenset().union(*read)
        if len(read) > 1:
            met.setdefault(sizes[name], []).append(name)
    # What is given shapes alone, in gradients, may come before the values meet in any order that is told here.
    found = [sorted(names, key=lambda name: view.nodes[name].op == "BroadcastGradientArgs") for names in met.values()]
    return {first: others for first, *others in found if view.nodes[first].op in _OF_SIZES or first in unneeded}


def _is_known(shape: tuple[int, ...] | None) -> bool:
    return shape is not None and -1 not in shape


def _is_of_unknown_shape(view: GraphView, name: str, known: tuple[int, ...] | None) -> bool:
    attr = view.nodes[name].proto.attr
    if "shape" not in attr:  # not a placeholder; asking for it would add it
        return known is not None and -1 in known
    shape = attr["shape"].shape
    return shape.unknown_rank or any(dim.size < 0 for dim in shape.dim)


def _not_needed(view: GraphView, order: Iterable[str], ends: Sequence[str], updates: Iterable[str]) -> list[str]:
    """Those of `ends` without a path to one of `updates`."""
    bits = {end: 1 << k for k, end in enumerate(ends)}
    reached: dict[str, int] = {}
    for name in order if ends else ():
        mask = bits.get(name, 0)
        for source, _ in view.nodes[name].inputs:
            mask |= reached.get(source, 0)
        reached[name] = mask
    needed = reduce(and_, (reached[update] for update in updates if update in reached), -1)
    return [end for end in ends if not bits[end] & needed]


def checks(view: GraphView, name: str) -> bool:
    """Is an op a check, or calls it one?"""
    return any(op in rules.CHECKS for op in (view.nodes[name].op, *(node.op for node in bodies(view, name))))
