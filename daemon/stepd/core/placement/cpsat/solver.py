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
from stepd.core.placement.cpsat.units import Units, units_for
from stepd.core.prepared import prepare
from stepd.core.problem import Index, Int, Problem
from stepd.core.simulator import Simulation, simulate_placement


@dataclass(frozen=True)
class Limits:
    """What a solve may use. seconds_left: of wall clock, asked when the model is built; work: CP-SAT's deterministic time. With
    `work`, answers are the same every time as long as the wall clock suffices; without it (inf), workers do not wait for each
    other."""

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
    units = units_for(prepared.tables, longest, limits.resolution)
    hint = _Hint(units, prepared.tables.seconds[np.arange(problem.n_ops), placement], known, placement)
    # A hint that overflows memory is no answer: a schedule that fits may be longer.
    horizon = hint.makespan if feasible else hint.makespan + units.ticks(longest)
    model = build(prepared, units, horizon + (0 if feasible and units.exact else problem.n_ops))
    if memory and not always_fits(model):
        add_memory(model)
    if runtime_rules:
        add_runtime_rules(model)
    hint.give(model, placement)
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
        solver.parameters.max_deterministic_time = limits.work
        solver.parameters.interleave_search = True
    # A single worker proves only; the large neighbourhood search that improves needs a second one.
    solver.parameters.num_workers = max(2, limits.workers)
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
        raise PlannerError(f"CP-SAT refuses the model: {model.cp.validate()}")
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


class _Hint:
    """A simulated step in ticks: the same order of ops on devices and of transfers on links, every time recomputed in integers."""

    def __init__(self, units: Units, seconds: np.ndarray, known: Simulation, placement: Index) -> None:
        self.units = units
        self.known = known
        self.ticks: Int = np.array([units.ticks(value) for value in seconds], dtype=np.int64)
        self.makespan = units.ticks(known.step_seconds) if units.exact else units.ticks(known.step_seconds) + 1
        self.placement = placement

    def give(self, model: ScheduleModel, placement: Index) -> None:
        """Hint every variable that has a value of its own."""
        start, send, arrive = self._replay(model)
        cp, tables = model.cp, model.prepared.tables
        cp.add_hint(model.true, 1)
        for g, on in enumerate(model.on):
            device = placement[tables.group_op[tables.group_pointer[g]]]
            if len(on) > 1:
                for d, literal in on.items():
                    cp.add_hint(literal, int(d == device))
        end = start + self.ticks
        for i, variable in enumerate(model.start):
            cp.add_hint(variable, int(start[i]))
            if isinstance(model.end[i], cp_model.IntVar) and model.end[i].index != variable.index:
                cp.add_hint(model.end[i], int(end[i]))
        for (output, dst), transfer in model.transfers.items():
            producer = model.producer(output)
            for src, sent in transfer.sent.items():
                cp.add_hint(sent, int((output, dst) in send and placement[producer] == src))
            cp.add_hint(transfer.start, send.get((output, dst), int(end[producer])))
            cp.add_hint(transfer.end, arrive.get((output, dst), int(end[producer])))
        cp.add_hint(model.makespan, int(end.max(initial=0)))

    def _replay(self, model: ScheduleModel) -> tuple[Int, dict[tuple[int, int], int], dict[tuple[int, int], int]]:
        """Start ticks of ops, and start and end ticks of transfers by (output, destination)."""
        tables, moves = model.prepared.tables, self.known.transfers
        position = np.empty(len(self.ticks))
        position[tables.topological] = np.arange(len(self.ticks))
        events = [(self.known.start[i], self.known.finish[i], position[i], i, -1) for i in range(len(self.ticks))]
        events += [
            (moves.start[k], moves.end[k], position[moves.op[k]] + 0.5, int(moves.output[k]), int(moves.dst[k]))
            for k in range(len(moves.op))
        ]
        start = np.zeros(len(self.ticks), dtype=np.int64)
        send: dict[tuple[int, int], int] = {}
        arrive: dict[tuple[int, int], int] = {}
        free_device = [0] * len(tables.memory)
        free_link = [0] * tables.n_links
        for _, _, _, item, dst in sorted(events):
            if dst < 0:
                device = int(self.placement[item])
                begin = free_device[device]
                for output in tables.input[tables.input_pointer[item] : tables.input_pointer[item + 1]].tolist():
                    producer = model.producer(output)
                    begin = max(begin, arrive.get((output, device), int(start[producer] + self.ticks[producer])))
                start[item] = begin
                free_device[device] = begin + int(self.ticks[item])
                continue
            producer = model.producer(item)
            src = int(self.placement[producer])
            begin = int(start[producer] + self.ticks[producer])
            links = model.route(src, dst)
            begin = max([begin, *(free_link[link] for link in links)])
            send[item, dst], arrive[item, dst] = begin, begin + model.transfer_ticks(item, src, dst)
            for link in links:
                free_link[link] = arrive[item, dst]
        return start, send, arrive
