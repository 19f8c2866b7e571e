"""The answer to a Problem: placement, execution order and splits (PROBLEM_FORMAT, "Strategy")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepd.core.problem import Index


@dataclass(frozen=True)
class Split:
    """Op `op` (index) cut on `axis` into `parts`; `devices[k]` runs part k (empty: the op's own device).

    `into`: where the whole is a sum, how its terms are added up, `parts` numbers for each slice of it. What part k has added up
    goes on to part into[k], or, where that is k, to the op itself. Empty: all terms go to the op itself.
    """

    op: int
    axis: str
    parts: int
    devices: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    into: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Strategy:
    """placement: int32 [n], device of each op. priority: int32 [n], a permutation of 0..n-1, the lowest ready runs first."""

    problem: str
    placement: Index
    priority: Index
    predicted_step_seconds: float
    splits: tuple[Split, ...] = ()
    planner: Mapping[str, Any] = field(default_factory=dict)
