"""What every algorithm ends with: its placement and order, simulated, as a Strategy."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare
from stepd.core.problem import Float, Index, Problem
from stepd.core.reach import connected_ops
from stepd.core.simulator import simulate_placement
from stepd.core.strategy import Strategy


def rank_order(keys: Float | Index) -> Index:
    """Priorities int32 [n] from sort keys [n]: the smallest key gets 0 (ties: the smaller op index first)."""
    priority = np.empty(len(keys), dtype=np.int32)
    priority[np.argsort(keys, kind="stable")] = np.arange(len(keys), dtype=np.int32)
    return priority


def finish(problem: Problem, algorithm: str, options: PlanOptions, placement: Index, priority: Index, **facts: Any) -> Strategy:
    """The Strategy of `placement` and `priority`, its step time as simulated; `facts` go into `planner`.

    An algorithm that knows nothing of missing links may ask for what they do not connect: the answer is what is like it and runs.
    """
    placement = connected_ops(prepare(problem), placement)
    simulation = simulate_placement(problem, placement, priority)
    return Strategy(
        problem=problem.name,
        placement=np.ascontiguousarray(placement, dtype=np.int32),
        priority=np.ascontiguousarray(priority, dtype=np.int32),
        predicted_step_seconds=simulation.step_seconds,
        planner={
            "algorithm": algorithm,
            "seed": options.seed,
            **({"parameters": dict(options.parameters)} if options.parameters else {}),
            "feasible": simulation.feasible,
            "peak_bytes": [int(peak) for peak in simulation.device_peak_bytes],
            **facts,
        },
    )
