"""What kernels do with whole arrays, against numpy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stepd.core.arrays import first_above, largest, sort_by
from stepd.core.compiled import interpreted

KEYS = st.lists(st.one_of(st.integers(-3, 3).map(float), st.floats(allow_nan=False)), max_size=200)


@given(KEYS, st.randoms(use_true_random=False))
def test_sorting_is_numpys_stable_sort(keys: list[float], random: object) -> None:
    values = np.array(keys, dtype=np.float64)
    order = np.arange(len(values), dtype=np.int32)
    random.shuffle(order)  # type: ignore[attr-defined]
    expected = order[np.argsort(values[order], kind="stable")]
    interpreted(sort_by)(values, order, np.empty_like(order))
    assert order.tolist() == expected.tolist()


@given(KEYS)
def test_the_largest(keys: list[float]) -> None:
    assert interpreted(largest)(np.array(keys, dtype=np.float64)) == max(keys, default=-np.inf)


@given(st.lists(st.integers(0, 20).map(lambda k: k / 20), min_size=1, max_size=20), st.floats(0, 0.999))
def test_the_first_above(shares: list[float], drawn: float) -> None:
    values = np.array(sorted(shares))
    expected = min(len(values) - 1, int(np.searchsorted(values, drawn, side="right")))
    assert interpreted(first_above)(values, drawn) == expected
