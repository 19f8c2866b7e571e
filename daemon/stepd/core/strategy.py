"""The answer to a Problem: placement, execution order and splits (PROBLEM_FORMAT, "Strategy")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepd.core.problem import Index


@dataclass(frozen=True)
class Split:
    """Op `op` (index) cut on `axis` into `parts`; `devices[k]` runs part k (empty: the op's own device)."""

    op: int
    axis: str
    parts: int
    devices: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False)
class Strategy:
    """placement: int32 [n], device of each op. priority: int32 [n], a permutation of 0..n-1, the lowest ready runs first."""

    problem: str
    placement: Index
    priority: Index
    predicted_step_seconds: float
    splits: tuple[Split, ...] = ()
    planner: Mapping[str, Any] = field(default_factory=dict)
