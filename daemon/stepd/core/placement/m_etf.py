"""m-ETF (Baechi, as told in Celeritas section 6.2.2): ETF over the devices that have room for the op and its group."""

from __future__ import annotations

import numpy as np

from stepd.core.placement.etf import etf
from stepd.core.placement.registry import PlanOptions
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """m-ETF. Parameter: `defer`, as in ETF."""
    everywhere = np.ones((problem.n_ops, problem.n_devices), dtype=np.bool_)
    return etf(problem, options, "m-etf", memory_factor=options.memory_factor, permitted=everywhere)
