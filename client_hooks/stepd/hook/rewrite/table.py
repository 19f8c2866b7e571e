"""The table of split rules: op type -> family. An op type that is not here is not split; stateful and random ones never are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from stepd.hook.rewrite.families import cells, contraction, convolution, elementwise, indexing, layout, ranges, reduction
from stepd.hook.rewrite.slots import Way
from stepd.hook.rewrite.values import Value

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import OpFacts

Family = Callable[["OpFacts"], Iterable[Way]]

_TABLE: tuple[tuple[Family, str], ...] = (
    (
        elementwise.alike,
        "Abs Acos Acosh Angle Asin Asinh Atan Atanh BesselI0e BesselI1e Ceil ComplexAbs Conj Cos Cosh Digamma Elu Erf Erfc Erfinv "
        "Exp Expm1 FakeQuantWithMinMaxArgs FakeQuantWithMinMaxArgsGradient Floor "
        "Imag Inv Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log Log1p LogicalNot Ndtri Neg Real Reciprocal Relu Relu6 Rint "
        "Round Rsqrt Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square Tan Tanh "
        "Cast OnesLike PreventGradient Snapshot StopGradient ZerosLike "
        "EluGrad InvGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad SigmoidGrad SoftplusGrad SoftsignGrad "
        "SqrtGrad TanhGrad AccumulateNV2",
    ),
    (elementwise.lists, "IdentityN"),
    (
        elementwise.broadcast,
        "ApproximateEqual Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex Div DivNoNan Equal FloorDiv FloorMod Greater GreaterEqual "
        "Igamma Igammac LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum Mod Mul MulNoNan NotEqual Pow "
        "Polygamma RealDiv RightShift "
        "SquaredDifference Sub TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta SelectV2 ClipByValue",
    ),
    (elementwise.ensured, "EnsureShape"),
    (elementwise.ranged, "FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsGradient"),
    (elementwise.addition, "Add AddV2"),
    (elementwise.total, "AddN"),
    (elementwise.forwarding, "Identity"),
    (elementwise.select, "Select"),
    (elementwise.shape, "Shape"),
    (elementwise.shapes, "ShapeN"),
    (elementwise.size, "Size"),
    (elementwise.rank, "Rank"),
    (contraction.matmul, "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3"),
    (contraction.einsum, "Einsum"),
    (convolution.forward, "Conv2D Conv3D"),
    (convolution.image_gradient, "Conv2DBackpropInput Conv3DBackpropInputV2"),
    (convolution.filter_gradient, "Conv2DBackpropFilter Conv3DBackpropFilterV2"),
    (convolution.depthwise, "DepthwiseConv2dNative"),
    (convolution.depthwise_image_gradient, "DepthwiseConv2dNativeBackpropInput"),
    (convolution.depthwise_filter_gradient, "DepthwiseConv2dNativeBackpropFilter"),
    (convolution.bias, "BiasAdd BiasAddV1"),
    (convolution.bias_gradient, "BiasAddGrad"),
    (
        convolution.pooling,
        "AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad MaxPool MaxPool3D MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad "
        "MaxPoolV2 MaxPoolGradV2",
    ),
    (convolution.local_response, "LRN LRNGrad"),
    (convolution.by_image, "DepthToSpace ExtractImagePatches SpaceToDepth"),
    (convolution.resize, "ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor ResizeNearestNeighborGrad"),
    (convolution.resize_gradient, "ResizeBicubicGrad ResizeBilinearGrad"),
    (convolution.normalization, "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"),
    (convolution.normalization_gradient, "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3"),
    (reduction.reduction, "All Any EuclideanNorm Max Mean Min Prod Sum"),
    (reduction.extreme_index, "ArgMax ArgMin"),
    (reduction.square_sum, "L2Loss"),
    (reduction.by_row, "LogSoftmax Softmax TopKV2"),
    (
        reduction.by_matrix,
        "Cholesky MatrixBandPart MatrixDeterminant MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixInverse",
    ),
    (reduction.diagonal, "MatrixDiag MatrixDiagV2 MatrixDiagV3"),
    (reduction.by_matrices, "MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixTriangularSolve"),
    (reduction.cross_entropy, "SoftmaxCrossEntropyWithLogits"),
    (reduction.sparse_cross_entropy, "SparseSoftmaxCrossEntropyWithLogits"),
    (reduction.hits, "InTopK InTopKV2"),
    (reduction.segments, "UnsortedSegmentSum"),
    (reduction.along, "Cumprod Cumsum ReverseV2 Roll"),
    (layout.reshape, "Reshape"),
    (layout.squeeze, "Squeeze"),
    (layout.expand, "ExpandDims"),
    (layout.transpose, "ConjugateTranspose Transpose"),
    (layout.concat, "Concat ConcatV2"),
    (layout.split, "Split SplitV"),
    (layout.pack, "Pack"),
    (layout.unpack, "Unpack"),
    (ranges.pad, "MirrorPad MirrorPadGrad Pad PadV2"),
    (ranges.slice_, "Slice"),
    (ranges.strided, "StridedSlice"),
    (ranges.strided_gradient, "StridedSliceGrad"),
    (indexing.tile, "Tile"),
    (indexing.broadcast_to, "BroadcastTo"),
    (indexing.fill, "Fill"),
    (indexing.gather, "Gather GatherV2"),
    (indexing.resource_gather, "ResourceGather"),
    (indexing.gather_nd, "GatherNd"),
    (indexing.one_hot, "OneHot"),
    (indexing.reverse_sequence, "ReverseSequence"),
    (indexing.shape_fed, "RandomStandardNormal RandomUniform TruncatedNormal"),
    (cells.cell, " ".join(cells.NAMES)),
)

FAMILIES: Mapping[str, Family] = {name: family for family, names in _TABLE for name in names.split()}

HEAVY = frozenset({
    "MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv3D",
    "Conv2DBackpropInput", "Conv2DBackpropFilter", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
    "DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
    *cells.NAMES,
})  # fmt: skip
"""Op types whose work is worth cutting their inputs for."""

PADDED_WHEN_EMPTY = frozenset({
    "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool", "MaxPoolGrad", "AvgPool3D", "MaxPool3D", "MaxPool3DGrad",
    "MaxPool3DGradGrad", "DepthwiseConv2dNativeBackpropFilter", "Conv3DBackpropFilterV2", "MirrorPad", "MirrorPadGrad",
    "AvgPool3DGrad",
    *cells.NAMES,
})  # fmt: skip
"""Op types that refuse an empty batch, give a wrong shape for it (oneDNN's kernels do), leave memory that nobody has set, or end
the process (oneDNN's MaxPoolGrad behind a MaxPool of nothing): such a part gets a row of zeros, which is dropped again, or adds
nothing to a sum."""

PULLED = frozenset(
    name
    for name, family in FAMILIES.items()
    if family in (elementwise.alike, elementwise.broadcast, elementwise.addition, elementwise.total, elementwise.forwarding)
) | {"BroadcastTo", "ExpandDims", "Fill", "Reshape", "Select", "Squeeze", "Tile", "Transpose"}
"""Op types that make no less than they read: better cut before them than behind."""


def shape_input(op: OpFacts) -> Value | None:
    """The dimensions of output 0 where an op takes them from an input, as far as that is known; None for other ops."""
    index = _SHAPED_BY.get(op.op)
    if index is None:
        return _without(op) if op.op in _REDUCTIONS else _tiled(op) if op.op == "Tile" else None
    value = op.value(index)
    return None if value is None else tuple(None if dim == -1 else dim for dim in value)


def _tiled(op: OpFacts) -> Value | None:
    """The dimensions of a Tile: known where one of the factors is 1."""
    dims, times = op.dims(0), op.value(1)
    if dims is None or times is None or len(dims) != len(times):
        return None
    return tuple(t if d == 1 else d if t == 1 else None for d, t in zip(dims, times, strict=True))


def _without(op: OpFacts) -> Value | None:
    """The dimensions that a reduction leaves."""
    dims, axes = op.dims(0), reduction.axes_of(op)
    if dims is None or axes is None:
        return None
    if op.flag("keep_dims"):
        return tuple(1 if k in axes else d for k, d in enumerate(dims))
    return tuple(d for k, d in enumerate(dims) if k not in axes)


_REDUCTIONS = frozenset({"Max", "Mean", "Min", "Prod", "Sum", "All", "Any"})
_SHAPED_BY = {
    "Reshape": 1,
    "Fill": 0,
    "BroadcastTo": 1,
    "RandomStandardNormal": 0,
    "RandomUniform": 0,
    "TruncatedNormal": 0,
    "Conv2DBackpropInput": 0,
    "Conv3DBackpropInputV2": 0,
    "StridedSliceGrad": 0,
}
