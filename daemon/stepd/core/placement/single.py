"""Everything on one device: the bar that every other strategy has to clear.

Ops that cannot run on the device (with their colocation groups) go to the device that runs them fastest.
"""

from __future__ import annotations

import numpy as np

from stepd.core.errors import PlannerError
from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.orders import order_for
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """The best single device: the fastest that is feasible, else the fastest. Parameter: `device` (index), only that one."""
    device = options.parameter("device", None)
    if device is not None and not 0 <= device < problem.n_devices:
        raise PlannerError(f"parameter device={device}: problem {problem.name!r} has devices 0..{problem.n_devices - 1}")
    candidates = range(problem.n_devices) if device is None else [device]
    strategies = [_on(problem, options, candidate) for candidate in candidates]
    return min(strategies, key=lambda s: (not s.planner["feasible"], s.predicted_step_seconds))


def _on(problem: Problem, options: PlanOptions, device: int) -> Strategy:
    wanted = np.full(problem.n_ops, device, dtype=np.int32)
    placement = nearest_allowed(prepare(problem), wanted)
    return finish(problem, "single", options, placement, order_for(problem, placement, "ready"), device=device)
