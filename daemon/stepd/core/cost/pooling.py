"""Op times of like devices, pooled: what one of them measured tells of the others too.

Times of one op on two devices of one type differ by how fast the devices are, by what the op likes about them, and by noise. A
planner that takes the noise for a difference puts ops where they only seem to be faster. Here each column of measured times is
drawn towards what its like devices say, as far as the noise of both explains the difference (empirical Bayes).

Pure arithmetic: knows no models.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepd.core.problem import Float


def pool(columns: Float, counts: Float, noise: float, kinds: Sequence[str]) -> Float:
    """float64 [n, d]: measured seconds drawn together, and filled in where only like devices know an op.

    columns: float64 [n, d], seconds, nan where not measured; counts: float64 [n, d], samples; noise: relative standard deviation
    of one sample; kinds: type of each device.
    """
    result: Float = columns.copy()
    variance = noise**2 / np.maximum(counts, 1.0)
    for j, kind in enumerate(kinds):
        total = np.zeros(len(columns))
        weight = np.zeros(len(columns))
        for k, other in enumerate(kinds):
            if other != kind:
                continue
            guess, doubt = (columns[:, j], variance[:, j]) if k == j else _seen_from(columns, variance, j, k)
            known = ~np.isnan(guess)
            trust = 1.0 / doubt[known]
            total[known] += trust * guess[known]
            weight[known] += trust
        told = weight > 0
        result[told, j] = total[told] / weight[told]
    return result


def _seen_from(columns: Float, variance: Float, j: int, k: int) -> tuple[Float, Float]:
    """What device k says of device j: (float64 [n] seconds, relative variance of them).

    The ratio of the two is by sums, not by medians of ratios: tiny ops are mostly noise and the large ones decide the step. How far
    single ops depart from it, beyond noise, is how little one device says of the other.
    """
    both = ~np.isnan(columns[:, j]) & ~np.isnan(columns[:, k]) & (columns[:, j] > 0) & (columns[:, k] > 0)
    if not both.any():
        return columns[:, k], variance[:, k]
    here, there = columns[both, j], columns[both, k]
    ratio = here.sum() / there.sum()
    departure = np.log(here / (there * ratio)) ** 2 - variance[both, j] - variance[both, k]
    own = max(float(np.average(departure, weights=here)), 0.0)
    return columns[:, k] * ratio, variance[:, k] + own
