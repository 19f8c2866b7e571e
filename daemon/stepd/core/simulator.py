"""What a strategy costs: step time, memory and what every device and link did (PROBLEM_FORMAT, "What a step costs").

Every planner predicts with this and nothing else. It knows no planner.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepd.core.compiled import interpreted
from stepd.core.errors import StrategyError
from stepd.core.prepared import Prepared, Tables, prepare
from stepd.core.problem import Float, Index, Int, Problem
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import State, new_state
from stepd.core.strategy import Strategy


@dataclass(frozen=True, eq=False)
class Transfers:
    """Transfers in order of reservation; equal-length columns. `output` is numbered as in Tables, `index` as at its op."""

    op: Index
    output: Index
    index: Index
    src: Index
    dst: Index
    start: Float
    end: Float
    nbytes: Int


@dataclass(frozen=True, eq=False)
class Simulation:
    """One simulated step. Seconds and bytes; [n] per op, [d] per device, [l] per link."""

    step_seconds: float
    start: Float
    finish: Float
    device_busy_seconds: Float
    device_peak_bytes: Int
    link_busy_seconds: Float
    transfers: Transfers
    overflow_bytes: Int  # [d] by how much the peak exceeds the device's memory

    @property
    def feasible(self) -> bool:
        """Whether every device holds its peak."""
        return not bool(np.any(self.overflow_bytes))


def simulate(problem: Problem, strategy: Strategy) -> Simulation:
    """Simulate one step of `strategy`. Raises StrategyError when it needs a path that does not exist or breaks a kernel limit."""
    return simulate_placement(problem, strategy.placement, strategy.priority)


def simulate_placement(problem: Problem, placement: Index, priority: Index) -> Simulation:
    """As `simulate`, of arrays: placement int [n], priority int [n], a permutation of 0..n-1."""
    return _simulated(problem, placement, priority, new_state, run_step)


def simulate_slowly(problem: Problem, placement: Index, priority: Index) -> Simulation:
    """As `simulate_placement`, in plain Python: some hundred times slower, for when there is no time to compile."""
    with np.errstate(all="ignore"):
        return _simulated(problem, placement, priority, interpreted(new_state), interpreted(run_step))


def _simulated(
    problem: Problem, placement: Index, priority: Index, room: Callable[[Tables], State], run: Callable[..., float]
) -> Simulation:
    prepared = prepare(problem)
    tables = prepared.tables
    placement = np.ascontiguousarray(placement, dtype=np.int32).copy()
    priority = np.ascontiguousarray(priority, dtype=np.int32).copy()
    check_arrays(problem, placement, priority)
    state = room(tables)
    seconds = run(tables, state, placement, priority, np.zeros(problem.n_ops), math.inf, True)
    if not math.isfinite(seconds):
        _explain_stuck(problem, prepared, placement)
    count = int(state.counters[0])
    outputs = state.transfer_output[:count]
    ops = tables.output_op[outputs]
    transfers = Transfers(
        op=ops,
        output=outputs,
        index=prepared.output_index[outputs],
        src=placement[ops],
        dst=state.transfer_device[:count],
        start=state.transfer_start[:count],
        end=state.transfer_end[:count],
        nbytes=tables.output_bytes[outputs],
    )
    return Simulation(
        step_seconds=float(seconds),
        start=state.start,
        finish=state.finish,
        device_busy_seconds=state.busy,
        device_peak_bytes=state.peak,
        link_busy_seconds=state.link_busy,
        transfers=transfers,
        overflow_bytes=np.maximum(state.peak - tables.memory, 0),
    )


def check_arrays(problem: Problem, placement: Index, priority: Index) -> None:
    """Raise StrategyError where placement or priority does not fit the problem."""
    n, d = problem.n_ops, problem.n_devices
    for what, column in (("placement", placement), ("priority", priority)):
        if column.shape != (n,):
            raise StrategyError(f"{what} has {column.size} entries, the problem {problem.name!r} has {n} ops")
    bad = np.flatnonzero((placement < 0) | (placement >= d))
    if len(bad):
        op = int(bad[0])
        raise StrategyError(f"op {problem.op_names[op]!r} is placed on device {int(placement[op])}; devices are 0..{d - 1}")
    if not np.array_equal(np.sort(priority), np.arange(n)):
        raise StrategyError(f"priority is not a permutation of 0..{n - 1}")
    bad = np.flatnonzero(~np.isfinite(problem.seconds[np.arange(n), placement]))
    if len(bad):
        op = int(bad[0])
        device = problem.devices[int(placement[op])].name
        raise StrategyError(f"op {problem.op_names[op]!r} is placed on {device!r}, where it cannot run")


def _explain_stuck(problem: Problem, prepared: Prepared, placement: Index) -> None:
    """Name the first edge whose ends are on devices that no path of links connects."""
    tables = prepared.tables
    for output in range(len(tables.output_op)):
        src = int(tables.output_op[output])
        for dst in tables.reader[tables.reader_pointer[output] : tables.reader_pointer[output + 1]]:
            pair = (int(placement[src]), int(placement[dst]))
            if pair[0] != pair[1] and pair not in prepared.routes:
                raise StrategyError(
                    f"op {problem.op_names[src]!r} on {problem.devices[pair[0]].name!r} feeds "
                    f"{problem.op_names[int(dst)]!r} on {problem.devices[pair[1]].name!r}: no path of links connects them"
                )
    raise StrategyError("the step never ends: the times of this problem overflow")
