"""Every rule of the table against the unsplit op: forward and gradient ops, dtypes, axes, uneven parts, sizes known late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from split_cases import CASES, NOT_IN_HALF, Inputs, ellipses, takes_channels_first
from split_harness import BFLOAT16, compare_all, computes_ellipses

from stepd.hook.rewrite import table

# Shared by the tests of one process: what has been compared.
SEEN: dict[str, set[str]] = {}
SEEN_LATE: set[tuple[str, str]] = set()


# What must have been compared with the whole op, on which axes: NHWC where a format decides.
PROMISED = {
    "MatMul": "0 1 inner",
    "BatchMatMul": "0 1 2 inner",
    "BatchMatMulV2": "0 1 2 3 inner",
    "Einsum": "0 1 2 3 in_f",
    "Conv2D Conv2DBackpropInput": "0 3 inner",
    "Conv2DBackpropFilter": "2 3 inner",
    "Conv3D Conv3DBackpropInputV2": "0 4 inner",
    "Conv3DBackpropFilterV2": "3 4 inner",
    "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput": "0 3",
    "DepthwiseConv2dNativeBackpropFilter": "2 inner",
    "BiasAdd": "0 1 2 3",
    "BiasAddGrad": "0 in0 in1 in2 in3",
    "MaxPool MaxPoolGrad AvgPool AvgPoolGrad": "0 3",
    "MaxPool3D MaxPool3DGrad AvgPool3D AvgPool3DGrad": "0 4",
    "Relu ReluGrad Tanh TanhGrad Sigmoid SigmoidGrad Elu EluGrad Softplus LeakyRelu LeakyReluGrad": "0 1 2",
    "Mul AddV2 Sub RealDiv Maximum SquaredDifference Cast SelectV2 Select Softsign Exp Square Neg": "0 1",
    "SoftplusGrad Sqrt SqrtGrad Rsqrt RsqrtGrad Reciprocal": "0 1",
    "Softmax LogSoftmax TopKV2": "0 1",
    "SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits": "0",
    "Sum Mean": "0 1 2 in0 in1 in2",
    "Max Min Prod": "0 1",
    "Reshape Transpose": "0 1 2",
    "ConcatV2 Split SplitV Pack Unpack": "0 2",
    "Pad PadV2": "0 2",
    "Slice": "0 3",
    "StridedSlice StridedSliceGrad": "0 2",
    "Gather": "0 1 2",
    "GatherV2": "0 1 2 3",
    "UnsortedSegmentSum": "1 in0 in1",
    "OneHot": "0 1 2",
    "Tile BroadcastTo Fill ExpandDims Squeeze": "0",
    "LSTMBlockCell LSTMBlockCellGrad GRUBlockCell GRUBlockCellGrad": "0",
    "BlockLSTM BlockLSTMV2 BlockLSTMGrad BlockLSTMGradV2": "1",
    "FusedBatchNorm FusedBatchNormGrad": "3",
}

# Uneven and equal parts, and a share that leaves nothing for the first part where sizes are known at run time only.
OLD = pytest.mark.skipif(tf.__version__.startswith("2.12."), reason="it pools no averages of bfloat16")
UNEVEN, EQUAL, NOTHING = (2, 3, 2), (1, 1), (1, 9999)


@pytest.mark.parametrize(
    ("dtype", "late", "shares"),
    [
        pytest.param(np.float32, False, [UNEVEN, EQUAL], id="float32"),
        pytest.param(np.float64, True, [UNEVEN, NOTHING], id="float64-late"),
        pytest.param(np.float32, True, [NOTHING], id="float32-late"),
        pytest.param(np.float16, False, [EQUAL], id="float16"),
        pytest.param(BFLOAT16, False, [UNEVEN], id="bfloat16", marks=OLD),
    ],
)
def test_the_parts_put_together_are_the_whole(dtype: Any, late: bool, shares: list[tuple[float, ...]]) -> None:
    with tf.Graph().as_default() as graph:
        inputs = Inputs(dtype, late)
        for build in CASES:
            if dtype in (np.float16, BFLOAT16) and (build in NOT_IN_HALF or (build is ellipses and not computes_ellipses(dtype))):
                continue
            build(inputs)
    for op, axis in compare_all(graph, inputs.feeds, shares):
        SEEN.setdefault(op, set()).add(axis)
        if late:
            SEEN_LATE.add((op, axis))


def test_every_op_type_of_the_table_was_compared() -> None:
    if not SEEN:
        pytest.skip("runs after the comparisons, in their process")
    # Their dimensions are known; they are not split.
    drawn = {"RandomStandardNormal", "RandomUniform", "TruncatedNormal", "ResourceGather"}
    in_regions = {op for op in table.FAMILIES if op.startswith("FusedBatchNorm") and "V3" in op}  # see test_regions
    assert set(table.FAMILIES) - set(SEEN) <= drawn | in_regions
    for ops, axes in PROMISED.items():
        for op in ops.split():
            assert set(axes.split()) <= SEEN[op], (op, SEEN[op])
    for op in table.PADDED_WHEN_EMPTY:
        assert {(op, "0"), (op, "1"), (op, "inner")} & SEEN_LATE, op
    assert "0" not in SEEN["FusedBatchNorm"]
    if takes_channels_first():
        assert "1" in SEEN["Conv2D"] & SEEN["Conv2DBackpropInput"]
