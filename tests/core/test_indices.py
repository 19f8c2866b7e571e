"""Kernels count indices from the start of an array; what else a process compiles may count from its end, as ever."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.testing import assert_equal

import stepd.core.compiled  # noqa: F401


def _pick(module: str) -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": module}
    exec("def pick(array, k):\n    return array[k]", names)
    return njit(names["pick"])  # type: ignore[no-any-return]


def test_negative_indices_are_left_out_of_kernels_alone() -> None:
    array = np.array([1, 2, 3])[1:]
    assert_equal(_pick("someone.s.module")(array, -1), 3)
    assert_equal(_pick("stepd.some.kernels")(array, -1), 1)  # what stands before the first: nothing is added to the index
