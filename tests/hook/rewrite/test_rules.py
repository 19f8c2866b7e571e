"""Every rule of the table against the unsplit op: forward and gradient ops, dtypes, axes, uneven parts, sizes known late."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from split_cases import CASES, NOT_IN_HALF, Inputs
from split_harness import compare_all

from stepd.hook.rewrite import table

# Shared by the tests of one process: what has been compared.
SEEN: dict[str, set[str]] = {}


# Uneven and equal parts, and a share that leaves nothing for the first part where sizes are known at run time only.
UNEVEN, EQUAL, NOTHING = (2, 3, 2), (1, 1), (1, 9999)


@pytest.mark.parametrize(
    ("dtype", "late", "shares"),
    [
        pytest.param(np.float32, False, [UNEVEN, EQUAL], id="float32"),
        pytest.param(np.float64, True, [UNEVEN, NOTHING], id="float64-late"),
        pytest.param(np.float32, True, [NOTHING], id="float32-late"),
        pytest.param(np.float16, False, [EQUAL], id="float16"),
    ],
)
def test_the_parts_put_together_are_the_whole(dtype: type[np.floating], late: bool, shares: list[tuple[float, ...]]) -> None:
    with tf.Graph().as_default() as graph:
        inputs = Inputs(dtype, late)
        for build in CASES:
            if dtype != np.float16 or build not in NOT_IN_HALF:
                build(inputs)
    for op, axis in compare_all(graph, inputs.feeds, shares):
        SEEN.setdefault(op, set()).add(axis)


def test_every_op_type_of_the_table_was_compared() -> None:
    if not SEEN:
        pytest.skip("runs after the comparisons, in their process")
    # Their dimensions are known; they are not split.
    drawn = {"RandomStandardNormal", "RandomUniform", "TruncatedNormal", "ResourceGather"}
    in_regions = {op for op in table.FAMILIES if op.startswith("FusedBatchNorm") and "V3" in op}  # see test_regions
    assert set(table.FAMILIES) - set(SEEN) <= drawn | in_regions
    for op, axes in {
        "MatMul": {"0", "1", "inner"},
        "BatchMatMulV2": {"0", "1", "2", "3", "inner"},
        "Einsum": {"0", "1", "2", "3", "in_f"},
        "Conv2D": {"0", "3", "inner"},
        "Conv2DBackpropInput": {"0", "3", "inner"},
        "Conv2DBackpropFilter": {"2", "3", "inner"},
        "Mean": {"0", "1", "in0", "in1", "in2"},
        "GatherV2": {"0", "1"},
        "FusedBatchNorm": {"3"},
    }.items():
        assert axes <= SEEN[op], op
    assert "0" not in SEEN["FusedBatchNorm"]
