"""What compiling costs a search whose kernels are not in the cache, so that its budget holds all the same.

How long it takes depends on the machine and its load, how the kernels compare with each other does not: the first one that has to
be compiled, the simulator, is the unit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from stepd.core.errors import StrategyError
from stepd.core.placement.ranks import op_seconds, transfer_seconds, upward_ranks
from stepd.core.prepared import prepare
from stepd.core.problem import Device, Index, Link, Problem
from stepd.core.simulator import simulate_placement


class Kernels:
    """Seconds to compile, over those of the simulator (CPU seconds of `stepd warm-up`, by kind)."""

    SIMULATOR = 1.0
    BOUND = 0.9
    CANDIDATES = 1.6
    SEARCH = 1.3
    ALGORITHM = 3.2


SIMULATOR_OVER_RANKS = 3.0
"""What the simulator takes to compile, over the ranks as the first kernel of a process."""
AT_LEAST_SECONDS = 2.0
"""With less time left, nothing is compiled: the compiler itself takes so long to get ready."""


@dataclass
class Compiling:
    """unit: seconds that the simulator took to compile, or will; 0: it came from the cache, as the others will."""

    budget_seconds: float
    unit: float = 0.0

    def affords(self, kernels: float, used: float) -> bool:
        """Whether `kernels` can be compiled when the share `used` of the budget is gone."""
        return self.unit == 0.0 or used + kernels * self.unit / self.budget_seconds <= 1.0

    def compile_simulator(
        self, problem: Problem, placement: Index, priority: Index, used: float, clock: Callable[[], float]
    ) -> None:
        """Unless it would not be compiled in time; then nothing else will be, either. used: share of the budget that is gone."""
        self.unit = seconds_for_simulator(problem, self.budget_seconds * (1.0 - used), clock)
        if not self.affords(Kernels.SIMULATOR, used):
            self.unit = np.inf
            return
        began = clock()
        with suppress(StrategyError):
            simulate_placement(problem, placement, priority)
        self.unit = clock() - began


def seconds_for_simulator(problem: Problem, left: float, clock: Callable[[], float]) -> float:
    """How long the simulator will take to compile, judged by a small kernel of the algorithms; inf with too few seconds `left`."""
    if left < AT_LEAST_SECONDS:
        return np.inf
    prepared = prepare(problem)
    began = clock()
    upward_ranks(prepared.tables, op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean"))
    return SIMULATOR_OVER_RANKS * (clock() - began)


def tiny_problem() -> Problem:
    """Three ops on two devices: enough to make every kernel of the search compile."""
    return Problem(
        name="warm-up",
        devices=(Device("0", "CPU", 1), Device("1", "CPU", 1)),
        links=(Link(0, 1, 1.0, 0.0), Link(1, 0, 1.0, 0.0)),
        op_names=("layer_0/a", "layer_1/b", "layer_1/c"),
        op_types=("A", "B", "B"),
        seconds=np.ones((3, 2)),
        resident_bytes=np.array([1, 0, 0]),
        temp_bytes=np.zeros(3, dtype=np.int64),
        colocation=np.full(3, -1, dtype=np.int32),
        edge_src=np.zeros(2, dtype=np.int32),
        edge_dst=np.array([1, 2], dtype=np.int32),
        edge_output=np.zeros(2, dtype=np.int32),
        edge_bytes=np.ones(2, dtype=np.int64),
    )
