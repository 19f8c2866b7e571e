"""Seconds and bytes as the integers that CP-SAT works with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepd.core.prepared import Tables
from stepd.core.problem import Float, Int

MOST_MEMORY_UNITS = 1 << 24


@dataclass(frozen=True)
class Units:
    """tick: seconds; unit: bytes. exact: no duration of the problem is rounded."""

    tick: float
    unit: int
    exact: bool

    def ticks(self, seconds: float) -> int:
        """Rounded down, so that a bound on the rounded problem is one on the problem."""
        return int(seconds / self.tick + 1e-6)

    def units(self, size: int) -> int:
        """Rounded up: what fits in units fits in bytes."""
        return -(-int(size) // self.unit)


def units_for(tables: Tables, horizon: float, resolution: int) -> Units:
    """A tick of which all durations are multiples, when a power of ten of at most `resolution` squared per horizon is one;
    otherwise `resolution` ticks up to `horizon` seconds."""
    unit = max(1, int(tables.memory.max()) // MOST_MEMORY_UNITS)
    durations = _durations(tables)
    for power in range(13):
        tick = 10.0**-power
        if horizon / tick > float(resolution) ** 2:
            break
        counts = durations / tick
        if np.allclose(counts, np.rint(counts), rtol=0.0, atol=1e-6):
            return Units(tick, unit, True)
    return Units(max(horizon, 1e-12) / resolution, unit, False)


def _durations(tables: Tables) -> Float:
    pairs = np.isfinite(tables.latency) & ~np.eye(len(tables.memory), dtype=bool)
    sizes: Int = np.unique(tables.output_bytes)
    transfers = tables.latency[pairs][:, None] + sizes[None, :] / tables.bandwidth[pairs][:, None]
    return np.concatenate((tables.seconds[np.isfinite(tables.seconds)], transfers.ravel()))
