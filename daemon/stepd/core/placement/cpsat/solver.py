"""From a problem and a first strategy to a proven or better one: builds the model, hints it completely, solves it, reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from stepd.core.bounds import longest_step
from stepd.core.errors import PlannerError
from stepd.core.placement.cpsat.memory_model import add_memory, always_fits
from stepd.core.placement.cpsat.runtime_rules import add_runtime_rules
from stepd.core.placement.cpsat.schedule_model import ScheduleModel, Var, build
from stepd.core.placement.cpsat.units import units_for
from stepd.core.prepared import prepare
from stepd.core.problem import Index, Problem
from stepd.core.simulator import Simulation, simulate_placement

MOST_WORKERS = 128
"""Beyond a few dozen CP-SAT's workers search alike; it refuses more than some thousands."""


@dataclass(frozen=True)
class Limits:
    """What a solve may use. seconds_left: of wall clock, asked when the model is built; work: CP-SAT's deterministic time. With
    `work`, one worker gives the same answer every time as long as the wall clock suffices."""

    seconds_left: Callable[[], float]
    work: float
    workers: int
    seed: int
    resolution: int = 20_000


@dataclass(frozen=True, eq=False)
class Solution:
    """placement, priority: int32 [n]. bound_seconds: no schedule of the model is shorter. status: "optimal", "feasible" (stopped
    early) "infeasible" (no schedule keeps to the memory) or "none" (nothing found in time); in these two placement and priority
    are the hint's."""

    placement: Index
    priority: Index
    step_seconds: float
    bound_seconds: float
    status: str

    @property
    def gap(self) -> float:
        """By how much the answer may exceed the best one, as a share of the answer; 1 without an answer."""
        if not np.isfinite(self.step_seconds):
            return 1.0
        return max(0.0, 1.0 - self.bound_seconds / self.step_seconds) if self.step_seconds > 0 else 0.0


def solve(
    problem: Problem,
    placement: Index,
    priority: Index,
    limits: Limits,
    runtime_rules: bool = False,
    memory: bool = True,
    found: Callable[[Index, Index], None] | None = None,
) -> Solution:
    """Schedule `problem`, starting from a strategy for it. Each better (placement, priority) is told to `found`.

    runtime_rules: model the runtime in full (small problems); otherwise schedules may wait, and the bound holds for both. memory:
    keep to the devices' memory at all times.
    """
    prepared = prepare(problem)
    known = simulate_placement(problem, placement, priority)
    feasible = known.feasible or not memory
    longest = known.step_seconds if feasible else max(known.step_seconds, longest_step(prepared))
    units = units_for(prepared.tables, longest, limits.resolution, loose=runtime_rules)
    # A hint that overflows memory is no answer: a schedule that fits may be longer.
    model = build(prepared, units, units.at(known.step_seconds) if feasible else units.at(longest) + 1)
    if memory and not always_fits(model):
        add_memory(model)
    if runtime_rules and not prepared.tables.handling.any():  # devices that handle transfers are busy beyond their ops
        add_runtime_rules(model)
    _hint(model, known, placement)
    return _run(model, placement, priority, limits, found)


def _run(
    model: ScheduleModel,
    placement: Index,
    priority: Index,
    limits: Limits,
    found: Callable[[Index, Index], None] | None,
) -> Solution:
    solver = cp_model.CpSolver()
    if np.isfinite(limits.work):
        # Workers tell what they find in the order in which they find it, which is another each time: one does the work of all.
        solver.parameters.max_deterministic_time = limits.work
        solver.parameters.interleave_search = True
        solver.parameters.num_workers = 1
    else:  # a single worker proves only; the large neighbourhood search that improves needs a second one
        solver.parameters.num_workers = min(max(2, limits.workers), MOST_WORKERS)
    solver.parameters.random_seed = limits.seed & 0x7FFFFFFF
    # Both cost the complete hint: probing takes longer than the budget, symmetry breaking forbids the hint's devices.
    solver.parameters.cp_model_probing_level = 0
    solver.parameters.symmetry_level = 0
    seconds = limits.seconds_left()
    if np.isfinite(seconds):
        solver.parameters.max_time_in_seconds = max(seconds, 0.01)
    status: Any = solver.solve(model.cp, _Tell(model, found) if found is not None else None)
    tick = model.units.tick
    if status == cp_model.MODEL_INVALID:
        raise PlannerError(f"CP-SAT refuses the model: {model.cp.validate() or solver.solution_info()}")
    bound = solver.best_objective_bound * tick if status != cp_model.INFEASIBLE else 0.0
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Solution(placement, priority, np.inf, bound, "infeasible" if status == cp_model.INFEASIBLE else "none")
    placed, order = _read(model, solver.value)
    name = "optimal" if status == cp_model.OPTIMAL else "feasible"
    return Solution(placed, order, solver.objective_value * tick, bound, name)


class _Tell(cp_model.CpSolverSolutionCallback):
    """Hands every better schedule on as a placement and priorities."""

    def __init__(self, model: ScheduleModel, found: Callable[[Index, Index], None]) -> None:
        super().__init__()
        self._model, self._found = model, found

    def on_solution_callback(self) -> None:
        self._found(*_read(self._model, self.value))


def _read(model: ScheduleModel, value: Callable[[Var], int]) -> tuple[Index, Index]:
    """Placement and priorities (by start, then end, producers first) of a schedule."""
    tables = model.prepared.tables
    n = len(model.start)
    placement = np.empty(n, dtype=np.int32)
    for i in range(n):
        placement[i] = next(d for d, on in model.op_on(i).items() if value(on))
    start, end = (np.array([value(time) for time in times]) for times in (model.start, model.end))
    position = np.empty(n, dtype=np.int64)
    position[tables.topological] = np.arange(n)
    priority = np.empty(n, dtype=np.int32)
    priority[np.lexsort((position, end, start))] = np.arange(n, dtype=np.int32)
    return placement, priority


def _hint(model: ScheduleModel, known: Simulation, placement: Index) -> None:
    """Hint every variable that has a value of its own: the simulated step, each of its times as the tick that it falls into."""
    cp, tables, at = model.cp, model.prepared.tables, model.units.at
    moves = known.transfers
    sent = {(int(moves.output[k]), int(moves.dst[k])): k for k in range(len(moves.op))}
    cp.add_hint(model.true, 1)
    for g, on in enumerate(model.on):
        device = placement[tables.group_op[tables.group_pointer[g]]]
        if len(on) > 1:
            for d, literal in on.items():
                cp.add_hint(literal, int(d == device))
    most = [model.lasts(tables.seconds[i, device])[1] for i, device in enumerate(placement)]
    ended = [min(at(known.finish[i]), at(known.start[i]) + most[i]) for i in range(len(most))]
    for i, (start, end) in enumerate(zip(model.start, model.end, strict=True)):
        cp.add_hint(start, at(known.start[i]))
        if isinstance(end, cp_model.IntVar) and end.index != start.index:
            cp.add_hint(end, ended[i])
    for (output, dst), transfer in model.transfers.items():
        producer, k = model.producer(output), sent.get((output, dst))
        for src, literal in transfer.sent.items():
            cp.add_hint(literal, int(k is not None and placement[producer] == src))
        if k is None:
            cp.add_hint(transfer.start, ended[producer])
            cp.add_hint(transfer.end, ended[producer])
        else:
            begin = at(moves.start[k])
            cp.add_hint(transfer.start, begin)
            cp.add_hint(transfer.end, min(at(moves.end[k]), begin + model.transfer_lasts(output, placement[producer], dst)[1]))
    cp.add_hint(model.makespan, at(known.step_seconds))
