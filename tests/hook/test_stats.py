"""The rank test against scipy's."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from stepd.hook.stats import mann_whitney_less

VALUES = st.integers(1, 10_000).map(lambda thousandths: thousandths / 1000)  # so far apart that 20 added keeps them so


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=12, unique=True), st.lists(VALUES, min_size=1, max_size=12, unique=True))
def test_small_samples_without_ties_are_exact(sample: list[float], reference: list[float]) -> None:
    reference = [value + 20.0 if value in sample else value for value in reference]
    expected = mannwhitneyu(sample, reference, alternative="less", method="exact").pvalue
    assert mann_whitney_less(sample, reference) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=25, max_size=60), st.lists(st.integers(0, 6), min_size=25, max_size=60))
def test_ties_take_the_corrected_normal_approximation(sample: list[int], reference: list[int]) -> None:
    expected = mannwhitneyu(sample, reference, alternative="less", method="asymptotic").pvalue
    if len(set(sample + reference)) > 1:
        assert mann_whitney_less(sample, reference) == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_equal_values_show_nothing() -> None:
    assert mann_whitney_less([1.0] * 30, [1.0] * 30) == 1.0


def test_an_empty_side_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mann_whitney_less([], [1.0])
