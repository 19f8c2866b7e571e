"""The rank test of the guard, and medians. numpy only (TensorFlow brings it)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np

EXACT_PAIRS = 400  # up to this product of sample sizes, and without ties, the exact distribution of U is used


def median(values: Collection[float]) -> float:
    """The middle one of one or more values, or half way between the two in the middle.

    Not `statistics`' own: a program may have a module of that name beside its script, which is what an import would find.
    """
    return float(np.median(np.fromiter(values, dtype=float)))


def mann_whitney_less(sample: Sequence[float], reference: Sequence[float]) -> float:
    """One-sided p-value of "values of `sample` tend to be smaller than those of `reference`" (Mann & Whitney 1947).

    Exact for small samples without ties, else the normal approximation with corrections for ties and continuity.

    Args:
        sample: n >= 1 values, any unit.
        reference: m >= 1 values of the same unit.

    Returns:
        P(U <= observed U) when both come from one distribution, in (0, 1].

    Raises:
        ValueError: one of them is empty.
    """
    n, m = len(sample), len(reference)
    if not n or not m:
        raise ValueError("the rank test needs at least one value on each side")
    values = np.concatenate([np.asarray(sample, dtype=float), np.asarray(reference, dtype=float)])
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    upper = np.cumsum(counts)
    ranks = (upper - (counts - 1) / 2.0)[inverse.ravel()]
    u = float(ranks[:n].sum()) - n * (n + 1) / 2.0
    if len(counts) == n + m and n * m <= EXACT_PAIRS:
        return _exact(round(u), n, m)
    ties = float((counts.astype(float) ** 3 - counts).sum())
    total = n + m
    variance = n * m / 12.0 * (total + 1 - ties / (total * (total - 1)))
    if variance <= 0.0:  # all values are equal
        return 1.0
    z = (u - n * m / 2.0 + 0.5) / math.sqrt(variance)
    return max(0.5 * math.erfc(-z / math.sqrt(2.0)), 1e-300)


@lru_cache(maxsize=256)
def _counts(n: int, m: int) -> tuple[float, ...]:
    """Number of rank arrangements for each value of U, by the product form of the Gaussian binomial coefficient."""
    coefficients = np.zeros(n * m + 1)
    coefficients[0] = 1.0
    for i in range(1, n + 1):
        multiplied = coefficients.copy()
        multiplied[m + i :] -= coefficients[: len(coefficients) - m - i]  # times (1 - q^(m+i))
        for k in range(i, len(multiplied)):  # over (1 - q^i)
            multiplied[k] += multiplied[k - i]
        coefficients = multiplied
    return tuple(coefficients)


def _exact(u: int, n: int, m: int) -> float:
    counts = _counts(n, m)
    return min(1.0, max(sum(counts[: u + 1]) / sum(counts), 1e-300))
