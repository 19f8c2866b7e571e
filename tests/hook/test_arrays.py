"""What constants say, read as the program would read them, and without a word."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from stepd.hook.arrays import array_of

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.python.framework import tensor_util  # noqa: E402


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.int64, tf.bool, tf.complex64])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2), (0,)])
@pytest.mark.parametrize("spelled_out", [True, False])
def test_arrays_of_constants(dtype: tf.DType, shape: tuple[int, ...], spelled_out: bool) -> None:
    value = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype.as_numpy_dtype)
    tensor = tensor_util.make_tensor_proto(value, dtype)
    if spelled_out and dtype in (tf.float16, tf.bfloat16):
        tensor.ClearField("tensor_content")
        tensor.half_val[:] = [int(bits) for bits in value.reshape(-1).view(np.uint16)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(array_of(tensor), value)


def test_the_last_value_stands_for_those_that_are_not_spelled_out() -> None:
    tensor = tensor_util.make_tensor_proto(np.float16(1.5))
    tensor.ClearField("tensor_content")
    tensor.half_val[:] = [int(np.float16(1.5).view(np.uint16))]
    tensor.tensor_shape.dim.add(size=2)
    tensor.tensor_shape.dim.add(size=3)
    np.testing.assert_array_equal(array_of(tensor), np.full((2, 3), 1.5, np.float16))
