"""What a TensorProto says, as an array. It must not know graphs or sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import tensor_util

_HALVES = frozenset({types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})


def array_of(tensor: Any) -> npt.NDArray[Any]:
    """The value of a TensorProto. For values of two bytes that are spelled out TensorFlow's own way of doing this makes newer NumPy
    warn, which the program would hear: as content they are read without."""
    if tensor.dtype in _HALVES and tensor.half_val:
        shape = tuple(dim.size for dim in tensor.tensor_shape.dim)
        given = np.asarray(tensor.half_val, np.uint16)
        missing = max(0, int(np.prod(shape, dtype=np.int64)) - given.size)
        content = type(tensor)(dtype=tensor.dtype, tensor_shape=tensor.tensor_shape)
        content.tensor_content = np.pad(given, (0, missing), mode="edge").tobytes()
        tensor = content
    return np.asarray(tensor_util.MakeNdarray(tensor))
