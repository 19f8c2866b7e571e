"""Runs core's planning algorithms for the offline commands: with a real clock, which Ctrl-C moves to the end of every budget, and
which stands still while kernels are compiled.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from stepd.cli.clean_output import libraries_on_stderr
from stepd.core.bounds import lower_bound
from stepd.core.compiled import at_hand
from stepd.core.errors import PlannerError, StepdError
from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions
from stepd.core.portfolio import planner as portfolio
from stepd.core.problem import Problem
from stepd.core.simulation_kernel import run_step
from stepd.core.simulator import simulate
from stepd.core.strategy import Strategy
from stepd.core.uncompiling import Uncompiling
from stepd.kernels import cores


@dataclass(frozen=True)
class Outcome:
    """What an algorithm's full sweep found on a problem; `error` says why nothing. step_seconds: simulated."""

    problem: str
    algorithm: str
    step_seconds: float = float("inf")
    feasible: bool = False
    planning_seconds: float = 0.0
    runs: int = 0
    error: str = ""


def make_options(budget: float, seed: int, workers: int, work: int = 0) -> PlanOptions:
    """Options with the machine's clock; with `work` they bound the work instead, and no clock runs. workers: threads, 0 for all
    cores. Raises PlannerError for a budget that is none."""
    if not 0 < budget < float("inf"):
        raise PlannerError(f"a budget of {budget} seconds cannot be kept: give seconds, more than 0")
    clock = registry.stopped_clock if work else time.monotonic
    return PlanOptions(budget_seconds=budget, seed=seed, workers=workers or cores.usable(), clock=clock, max_work=work)


def compiled() -> bool:
    """Whether planning begins at once: the kernels that it needs first are in the cache."""
    return at_hand(run_step)


def plan(problem: Problem, algorithm: str, options: PlanOptions) -> Strategy:
    """The best strategy of one algorithm's full sweep, its planning time and the lower bound in `planner`.

    Parameter sets that have no answer are left out; where none has one, the error of the first is raised.

    Ctrl-C ends the budget, not the process: the search stops where it would have stopped, and its best counts. (An exception out
    of the middle of it would free arrays under kernels that run in threads.)

    With bounded work no clock runs: Ctrl-C ends the sweep only, and no times are noted, so that the answer is the same each time.

    Compiling kernels, once per machine and version, is no planning: every search gets its whole budget, and so finds what it will
    find the next time.
    """
    found: list[Strategy] = []
    errors: list[StepdError] = []
    with (
        libraries_on_stderr(),
        closing(Uncompiling(options.clock)) as planning,
        _interruptible(planning.now) as clock,
        ThreadPoolExecutor(options.workers) as pool,
    ):
        if algorithm == "portfolio":
            portfolio.warm_up()
        now = options.clock if options.clock is registry.stopped_clock else clock.now
        began = planning.now()
        for each in registry.swept(algorithm, replace(options, clock=now, run_all=pool.map)):
            try:
                found.append(registry.plan(algorithm, problem, each))
            except StepdError as error:
                errors.append(error)
            if clock.interrupted:
                break
        seconds, compiling = planning.now() - began, planning.compiling
    if not found:
        raise errors[0]
    best = min(found, key=_rank)
    facts = {
        "seconds": round(seconds, 6),
        "compiling_seconds": round(compiling, 6),
        "lower_bound_seconds": _bound(problem, best),
        "seed": options.seed,
    }
    return replace(best, planner={**best.planner, **facts})


class _Clock:
    """`clock` until it is interrupted, then one that is past every budget."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.interrupted = False

    def now(self) -> float:
        return self._clock() + (1e9 if self.interrupted else 0.0)


@contextmanager
def _interruptible(time: Callable[[], float]) -> Iterator[_Clock]:
    """A clock that the first Ctrl-C within interrupts; a second one is an ordinary one."""
    clock = _Clock(time)

    def interrupt(number: int, frame: object) -> None:
        clock.interrupted = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield clock
    finally:
        signal.signal(signal.SIGINT, before)


def outcome(problem: Problem, algorithm: str, options: PlanOptions) -> Outcome:
    """As `plan`, for a comparison: what cannot run here is an Outcome that says why."""
    try:
        best = plan(problem, algorithm, options)
    except StepdError as error:
        return Outcome(problem.name, algorithm, error=str(error))
    simulation = simulate(problem, best)
    runs = len(registry.swept(algorithm, options))
    return Outcome(problem.name, algorithm, simulation.step_seconds, simulation.feasible, best.planner["seconds"], runs)


def best_feasible(outcomes: Sequence[Outcome]) -> float:
    """The shortest step that fits into memory, inf when none does."""
    return min((o.step_seconds for o in outcomes if o.feasible), default=float("inf"))


def _rank(strategy: Strategy) -> tuple[bool, float]:
    return not strategy.planner.get("feasible", True), strategy.predicted_step_seconds


def _bound(problem: Problem, strategy: Strategy) -> float:
    known = strategy.planner.get("lower_bound_seconds")
    return float(known) if known else lower_bound(problem)
