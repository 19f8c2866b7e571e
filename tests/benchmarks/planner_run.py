"""One algorithm on one problem, in a process of its own: planner_run.py PROBLEM ALGORITHM BUDGET WORKERS LIMIT -> JSON on stdout.

A sweep stops when LIMIT seconds are over; what it found until then counts. Searches (those that use their whole budget) run once.
WORKERS "cpu": one, and every time is in CPU seconds, so that other work on the machine does not count.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from stepd.kernels import cache

cache.use()

from stepd.cli.problem_files import Reading, read_problem  # noqa: E402
from stepd.core.bounds import lower_bound  # noqa: E402
from stepd.core.errors import StepdError  # noqa: E402
from stepd.core.placement import registry  # noqa: E402
from stepd.core.placement.registry import PlanOptions  # noqa: E402
from stepd.core.portfolio import planner as portfolio  # noqa: E402
from stepd.core.prepared import prepare  # noqa: E402
from stepd.core.problem import Problem  # noqa: E402
from stepd.core.simulator import simulate  # noqa: E402
from stepd.core.uncompiling import Uncompiling  # noqa: E402


def main() -> None:
    path, algorithm, budget, workers, limit = sys.argv[1:]
    problem = read_problem(Path(path), Reading())
    threads, clock = (1, time.process_time) if workers == "cpu" else (int(workers), time.monotonic)
    facts = measure(problem, algorithm, float(budget), threads, float(limit), clock)
    print(json.dumps(facts))


def measure(
    problem: Problem, algorithm: str, budget: float, workers: int, limit: float, clock: Callable[[], float]
) -> dict[str, object]:
    """Quality and cost of one algorithm; `step_seconds` is None when it answered nothing."""
    facts: dict[str, object] = {"ops": problem.n_ops, "edges": len(problem.edge_src), "devices": problem.n_devices}
    prepare(problem)
    registry.find(algorithm).load()
    if algorithm == "portfolio":
        portfolio.warm_up()  # as `stepctl plan` does before the budget begins, which compiling and loading kernels is no part of
        clock = Uncompiling(clock).now
    before = _peak_bytes()
    sets = registry.swept(algorithm, PlanOptions(budget_seconds=budget, workers=workers, clock=clock))
    began = clock()
    found, times, errors = [], [], []
    for options in sets:
        if clock() - began > limit:
            break
        start = clock()
        try:
            strategy = registry.plan(algorithm, problem, options)
        except StepdError as error:
            errors.append(str(error))
            continue
        times.append(clock() - start)
        simulation = simulate(problem, strategy)
        found.append((not simulation.feasible, simulation.step_seconds))
    facts |= {
        "runs": len(found),
        "sweep": len(sets),
        "grew_bytes": _peak_bytes() - before,
        "total_seconds": clock() - began,
    }
    if not found:
        return facts | {"error": errors[0] if errors else "nothing ran within the limit", "step_seconds": None}
    warm = None
    if registry.find(algorithm).effort != "search" and times[0] < limit:
        start = clock()
        registry.plan(algorithm, problem, sets[0])
        warm = clock() - start
    infeasible, step = min(found)
    bound = lower_bound(problem)
    facts |= {"cold_seconds": times[0], "warm_seconds": warm, "lower_bound_seconds": bound}
    return facts | {"feasible": not infeasible, "step_seconds": step}


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    try:
        main()
    except StepdError as error:
        sys.exit(str(error))
