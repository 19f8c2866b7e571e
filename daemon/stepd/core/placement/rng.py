"""Pseudo-random numbers for kernels: one 64-bit state in an array, the same sequence for a seed everywhere (splitmix64)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepd.core.compiled import lean

Rng = npt.NDArray[np.uint64]


def new_rng(seed: int) -> Rng:
    """A generator's state for any integer seed. uint64 [1]."""
    return np.array([seed & 0xFFFFFFFFFFFFFFFF], dtype=np.uint64)


@lean
def uniform(rng: Rng) -> float:
    """A number in [0, 1)."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@lean
def below(rng: Rng, count: int) -> int:
    """An integer in 0..count - 1."""
    return int(uniform(rng) * count)
