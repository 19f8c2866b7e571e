"""Seconds and bytes as the integers that CP-SAT works with, such that every step of the problem is a schedule of the model.

A moment of a simulated step becomes the tick that it falls into. What lasts d seconds then lasts d in ticks, rounded up or down.
Where the runtime's rules are modelled, which say what begins exactly when something else ends, the model may choose (`loose`).
Otherwise it is always rounded down, which solves faster: ends may come early, and memory counts as taken that much later. So
bounds on the model, and its proof that nothing fits, hold for the problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from stepd.core.prepared import Tables
from stepd.core.problem import Float

MOST_UNITS = 1 << 32
"""Of memory: its product with time must stay below what CP-SAT adds up."""

MOST_EXACT_TICKS = 4e8
_SAME = 1e-13
"""Relative difference of two floats that stand for one decimal number."""

_ACCURACY = 1e-6
"""Ticks; more than what sums of seconds lose in floating point."""


@dataclass(frozen=True)
class Units:
    """tick: seconds; unit: bytes. exact: every duration of the problem is a whole number of ticks. loose: others may be rounded
    up or down."""

    tick: float
    unit: int
    exact: bool
    loose: bool

    def at(self, seconds: float) -> int:
        """The tick of a moment."""
        return round(seconds / self.tick) if self.exact else int(seconds / self.tick)

    def ticks(self, seconds: float) -> int:
        """The least number of ticks between two moments that are `seconds` apart."""
        return round(seconds / self.tick) if self.exact else max(0, math.floor(seconds / self.tick - _ACCURACY))

    def most_ticks(self, seconds: float) -> int:
        """The largest number of ticks between them that the model allows."""
        fixed = self.exact or not self.loose or not seconds
        return self.ticks(seconds) if fixed else math.ceil(seconds / self.tick + _ACCURACY)

    @property
    def early(self) -> int:
        """By how many ticks something may end too early."""
        return 0 if self.exact or self.loose else 2

    def units(self, size: int) -> int:
        """Rounded down, as the memory is: what fits in bytes fits in units."""
        return int(size) // self.unit


def units_for(tables: Tables, horizon: float, resolution: int, loose: bool) -> Units:
    """A tick of which all durations are multiples, when a power of ten is one and the horizon is not too many of them;
    otherwise `resolution` ticks up to `horizon` seconds."""
    unit = _unit(tables)
    durations = np.unique(_durations(tables))
    for power in range(13):
        tick = 10.0**-power
        if horizon / tick > MOST_EXACT_TICKS:
            break
        counts = durations / tick
        if np.allclose(counts, np.rint(counts), rtol=_SAME, atol=0.0):
            return Units(tick, unit, True, loose)
    return Units(max(horizon, 1e-12) / resolution, unit, False, loose)


def _unit(tables: Tables) -> int:
    """The bytes of which all sizes are multiples, or more where the memory is too many of these."""
    sizes = np.concatenate((tables.resident, tables.temp, tables.output_bytes))
    room = min(int(tables.memory.max()), most_bytes(tables))
    return max(1, int(np.gcd.reduce(sizes)), -(-room // MOST_UNITS))


def most_bytes(tables: Tables) -> int:
    """What no device ever holds more than."""
    return int(tables.resident.sum()) + int(tables.output_bytes.sum()) + int(tables.temp.max(initial=0))


def _durations(tables: Tables) -> Float:
    pairs = np.isfinite(tables.latency) & ~np.eye(len(tables.memory), dtype=bool)
    sizes = np.unique(tables.output_bytes)
    transfers = tables.latency[pairs][:, None] + sizes[None, :] / tables.bandwidth[pairs][:, None]
    return np.concatenate((tables.seconds[np.isfinite(tables.seconds)], transfers.ravel()))
