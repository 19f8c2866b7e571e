"""Step times by step kind and strategy: bounded, robust, and which kind matters.

Pure bookkeeping; the hook's guard does the verification of a switch, this is what planning and drift look at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

KEPT = 256
RECENT = 32
ENOUGH = 5
"""Steps below which a median says nothing."""


class StepTimes:
    """Recent unprofiled step times, seconds."""

    def __init__(self) -> None:
        self._recent: dict[tuple[str, str], deque[float]] = {}
        self._total: dict[str, float] = {}
        self._steps: dict[str, int] = {}

    def observe(self, kind: str, strategy_id: str, seconds: Sequence[float]) -> None:
        self._recent.setdefault((kind, strategy_id), deque(maxlen=KEPT)).extend(seconds)
        self._total[kind] = self._total.get(kind, 0.0) + sum(seconds)
        self._steps[kind] = self._steps.get(kind, 0) + len(seconds)

    @property
    def main_kind(self) -> str:
        """The step kind that took most of the time so far; "" before the first step. Kinds that ran once
        (initialisers) come last.
        """
        if not self._total:
            return ""
        return max(self._total, key=lambda kind: (self._steps[kind] > 1, self._total[kind]))

    def steps(self, kind: str) -> int:
        return self._steps.get(kind, 0)

    def typical(self, kind: str, strategy_id: str) -> float:
        """Median of the recent steps; 0.0 when there are too few."""
        times = self._recent.get((kind, strategy_id), ())
        return median(list(times)[-RECENT:]) if len(times) >= ENOUGH else 0.0

    def last(self, kind: str, strategy_id: str, count: int) -> list[float]:
        return list(self._recent.get((kind, strategy_id), ()))[-count:]
