"""HEFT (Topcuoglu et al. 2002): list scheduling by upward rank with mean costs and insertion; no critical-path device."""

from __future__ import annotations

from stepd.core.placement.fastt_dpos import scheduled, settings_of
from stepd.core.placement.registry import PlanOptions
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """HEFT. Parameters: `costs` ("mean" as published, or "max"), `insertion`, `defer` (as in DPOS; only link-aware)."""
    return scheduled(problem, "heft", options, settings_of(options, costs="mean", path=False))
