"""The best strategy of a small problem, with proof, by CP-SAT; of a larger one the best found within the budget, with a bound."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from stepd.core.placement.cpsat.solver import Limits, Solution, solve
from stepd.core.placement.orders import order_for
from stepd.core.placement.registry import PlanOptions, find, stopped_clock
from stepd.core.placement.result import finish
from stepd.core.problem import Index, Problem
from stepd.core.simulator import simulate_placement
from stepd.core.strategy import Strategy

SMALL = 12
"""Up to this many ops the runtime's own rules are part of the model, and an optimum of it is one of the execution model."""

FINE = 100_000_000
"""Ticks of a small problem's step where its times are no round decimal numbers."""

PROVEN = 1e-6
"""Share of the step within which an answer that equals the bound is called optimal: what ticks lose of it."""

INSTANT = 1e-5
"""Seconds of ops that take none, as a share of the shortest time that one takes, while an order is looked for among them."""

DEFAULT_WORK = 20.0
"""CP-SAT's deterministic seconds, where neither a clock nor `max_work` bounds the search."""


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: small (most ops for the full execution model). `max_work` counts CP-SAT's deterministic seconds."""
    limits = limits_of(options)
    start = best_start(problem, options)
    answers = [start]

    def found(placement: Index, priority: Index) -> None:
        answers.append((placement, priority))

    small = problem.n_ops <= options.parameter("small", SMALL)
    limits = replace(limits, resolution=FINE) if small else limits
    solution = solve(problem, *start, limits, runtime_rules=small, found=found)
    best = min(answers, key=lambda answer: cost(problem, *answer))
    if small and _claim(problem, best, solution)[0] in ("feasible", "none") and not problem.seconds.all():
        solve(_with_instants(problem), *best, limits, runtime_rules=True, found=found)
        best = min(answers, key=lambda answer: cost(problem, *answer))
    status, gap = _claim(problem, best, solution)
    told = facts(solution) | {"status": status, "optimality_gap": gap}
    return finish(problem, "exact", options, best[0], best[1], **told)


def _claim(problem: Problem, answer: tuple[Index, Index], solution: Solution) -> tuple[str, float]:
    """Status and gap of a simulated answer. No schedule of the model is one of the runtime for certain, but every step of the
    runtime is one of the model: its bound and its proof that nothing fits hold, and only an answer at the bound is optimal."""
    overflow, step = cost(problem, *answer)
    if overflow:
        return ("infeasible" if solution.status == "infeasible" else "none"), 1.0
    gap = max(0.0, 1.0 - solution.bound_seconds / step) if step > 0 else 0.0
    return ("optimal" if gap <= PROVEN else "feasible"), gap


def _with_instants(problem: Problem) -> Problem:
    """Ops of 0 seconds take a moment each, so that the model says which of them goes first, and counts their memory."""
    moment = INSTANT * float(problem.seconds[problem.seconds > 0].min(initial=1.0))
    return replace(problem, seconds=np.where(problem.seconds == 0, moment, problem.seconds))


def limits_of(options: PlanOptions) -> Limits:
    """CP-SAT's limits: the budget on the clock from now on, unless the clock is stopped; then deterministic work."""
    stopped = options.clock is stopped_clock
    work = float(options.max_work) if options.max_work else (DEFAULT_WORK if stopped else math.inf)
    end = options.clock() + options.budget_seconds
    return Limits(lambda: math.inf if stopped else end - options.clock(), work, options.workers, options.seed)


def facts(solution: Solution) -> dict[str, float | str]:
    """What a strategy's `planner` says of a solve. The bound is on the problem that was solved, coarse where it was coarsened."""
    return {
        "status": solution.status,
        "model_step_seconds": solution.step_seconds if math.isfinite(solution.step_seconds) else -1.0,
        "model_lower_bound_seconds": solution.bound_seconds,
        "optimality_gap": solution.gap,
    }


def best_start(problem: Problem, options: PlanOptions) -> tuple[Index, Index]:
    """The best heuristic answer, feasible ones first: where CP-SAT starts."""
    best: tuple[Index, Index] | None = None
    for name in ("single", "fastt-dpos", "heft"):
        strategy = find(name).load()(problem, PlanOptions(seed=options.seed, memory_factor=options.memory_factor))
        answer = (strategy.placement, strategy.priority)
        best = answer if best is None else _better(problem, best, answer)
        again = (strategy.placement, order_for(problem, strategy.placement, "placed-rank"))
        best = _better(problem, best, again)
    assert best is not None
    return best


def _better(problem: Problem, one: tuple[Index, Index], other: tuple[Index, Index]) -> tuple[Index, Index]:
    return min(one, other, key=lambda answer: cost(problem, *answer))


def cost(problem: Problem, placement: Index, priority: Index) -> tuple[int, float]:
    """Bytes that do not fit, then simulated seconds: the smaller the better."""
    simulation = simulate_placement(problem, placement, priority)
    return int(np.sum(simulation.overflow_bytes)), simulation.step_seconds
