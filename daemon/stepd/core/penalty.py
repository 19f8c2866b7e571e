"""What a step for which memory does not suffice counts for, where searches compare it with others. It knows no search."""

from __future__ import annotations

from typing import NamedTuple

from stepd.core.compiled import lean


class Penalty(NamedTuple):
    """Seconds that a step counts for longer where memory does not suffice: at once, and for each share of memory missing."""

    once: float
    slope: float


@lean
def penalised(seconds: float, overflow: float, penalty: Penalty) -> float:
    """Seconds of a step, with the penalty where memory does not suffice."""
    return seconds + (penalty.once + penalty.slope * overflow if overflow > 0.0 else 0.0)
