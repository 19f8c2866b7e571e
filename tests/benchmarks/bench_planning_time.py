"""What one call of each algorithm costs, warm: CPU milliseconds, by size of the problem, on random problems.

    python tests/benchmarks/bench_planning_time.py [NAME ...] [--problems small lstm random] [--repeat 3]

NAME: algorithms of the registry with their default parameters, `simulator`, `bound`, `reschedule` (one of OS-DPOS, the mean of
20 within a search of 30), or `round` (one of the portfolio's local search from HEFT, the mean of 20 within a search of 25). Each
is called once before it is measured; of `--repeat` calls the fastest counts.
`--wall-reschedules N` says instead how long N reschedules of OS-DPOS take, on `--workers` threads; `--portfolio S` how long the
portfolio takes with a budget of S seconds, and how far it came.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import numpy as np
from random_problems import random_problem, unrolled_lstm

from stepd.kernels import cache

cache.use()

from stepd.core.bounds import best_bound  # noqa: E402
from stepd.core.placement import fastt_os_dpos, registry  # noqa: E402
from stepd.core.placement.registry import PlanOptions  # noqa: E402
from stepd.core.portfolio import planner as portfolio  # noqa: E402
from stepd.core.prepared import prepare  # noqa: E402
from stepd.core.problem import Problem  # noqa: E402
from stepd.core.simulation_kernel import run_step  # noqa: E402
from stepd.core.simulation_state import new_state  # noqa: E402
from stepd.core.strategy import Strategy  # noqa: E402

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "small": lambda: random_problem("stacked", 0, ops=706, devices=4),
    "lstm": unrolled_lstm,
    "random": lambda: random_problem("random", 0, ops=36_000, devices=8),
}
QUICK = (
    "simulator", "round", "bound", "fastt-dpos", "reschedule", "heft", "etf", "getf", "m-topo", "m-etf", "celeritas", "order-place",
    "expert", "linear-clustering", "dsc", "metis",
)  # fmt: skip


def simulator(problem: Problem) -> Callable[[], object]:
    """One simulated step of a placement in rows, in a state that is kept."""
    tables = prepare(problem).tables
    n, d = tables.seconds.shape
    state, tail = new_state(tables), np.zeros(n)
    order = tables.topological.argsort().astype(np.int32)
    placement = np.where(np.isfinite(tables.seconds), np.arange(n)[:, None] * d // n == np.arange(d)[None, :], -1).argmax(axis=1)
    for group in np.unique(tables.group[problem.colocation >= 0]):
        placement[tables.group == group] = placement[tables.group == group].min()
    where = placement.astype(np.int32)
    return lambda: run_step(tables, state, where, order, tail, np.inf, True)


def milliseconds(call: Callable[[], object], repeat: int) -> float:
    """CPU time of the fastest of `repeat` calls after one that does not count."""
    call()
    times = []
    for _ in range(repeat):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times) * 1e3


def reschedule(problem: Problem, count: int = 30) -> float:
    """CPU milliseconds of one reschedule, from two searches that differ in how many they make."""
    if not problem.split_choices:
        return float("nan")
    fastt_os_dpos.place(problem, PlanOptions(max_work=2, budget_seconds=600))
    used = []
    for work in (10, count):
        began = time.process_time()
        fastt_os_dpos.place(problem, PlanOptions(max_work=work, budget_seconds=600, parameters={"patience": 10_000}))
        used.append(time.process_time() - began)
    return (used[1] - used[0]) / (count - 10) * 1e3


def round_of_search(problem: Problem, count: int = 25) -> float:
    """CPU milliseconds of one round of the local search, from two searches that differ in how many they make."""
    used = []
    for work in (1, 5, count):
        began = time.process_time()
        for _ in portfolio.search(problem, PlanOptions(max_work=work, parameters={"algorithms": ("heft",)})):
            pass
        used.append(time.process_time() - began)
    return (used[2] - used[1]) / (count - 5) * 1e3


def wall_of_reschedules(problem: Problem, count: int, workers: int) -> float:
    """Wall seconds of a search of `count` reschedules that no failure ends."""
    fastt_os_dpos.place(problem, PlanOptions(max_work=2, budget_seconds=600))
    with ThreadPoolExecutor(workers) as pool:
        options = PlanOptions(max_work=count, budget_seconds=600, parameters={"patience": 10_000}, run_all=pool.map)
        began = time.monotonic()
        found = fastt_os_dpos.place(problem, options)
    return (time.monotonic() - began) * count / found.planner["reschedules"]


def portfolio_within(problem: Problem, budget: float, workers: int) -> str:
    """Wall seconds of the portfolio, the step that it found, and what it had time for."""
    calls: dict[str, int] = {}
    plan = registry.plan

    def counted(name: str, *rest: Any) -> Strategy:
        calls[name] = calls.get(name, 0) + 1
        return plan(name, *rest)

    found: list[tuple[float, Strategy]] = []
    with ThreadPoolExecutor(workers) as pool, patch.object(registry, "plan", counted):
        began = time.monotonic()
        options = PlanOptions(budget_seconds=budget, workers=workers, clock=time.monotonic, run_all=pool.map)
        for strategy in portfolio.search(problem, options):
            found.append((time.monotonic() - began, strategy))
        wall = time.monotonic() - began
    best, first = found[-1][1], found[0][1]
    fast = [name for name in registry.names() if registry.find(name).effort == "fast" and name != "single"]
    left = [name for name in fast if name not in calls]
    step, alone, bound = best.predicted_step_seconds, first.predicted_step_seconds, best.planner["lower_bound_seconds"]
    return (
        f"{problem.name}: {wall:.2f} s of {budget:g}, {step * 1e3:.1f} ms (a single device {alone * 1e3:.1f}, lower bound "
        f"{bound * 1e3:.1f}) by {best.planner['origin']}; {sum(calls.values())} runs of algorithms, not run of the fast ones: "
        f"{', '.join(left) or 'none'}; {best.planner['rounds']} rounds of search"
    )


def cost(name: str, problem: Problem, repeat: int) -> float:
    """Milliseconds of one call."""
    if name == "simulator":
        return milliseconds(simulator(problem), max(repeat, 10))
    if name == "bound":
        return milliseconds(lambda: best_bound(problem), repeat)
    if name == "round":
        return round_of_search(problem)
    if name == "reschedule":
        return reschedule(problem)
    options = registry.swept(name, PlanOptions(clock=time.monotonic))[0]
    return milliseconds(lambda: registry.plan(name, problem, options), repeat)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=QUICK)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--wall-reschedules", type=int, default=0)
    parser.add_argument("--portfolio", type=float, default=0.0)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    problems = [PROBLEMS[key]() for key in options.problems]
    for problem in problems:
        prepare(problem)
    if options.wall_reschedules:
        for problem in problems:
            seconds = wall_of_reschedules(problem, options.wall_reschedules, options.workers)
            print(f"{problem.name}: {options.wall_reschedules} reschedules on {options.workers} threads: {seconds:.1f} s")
        return
    if options.portfolio:
        portfolio.warm_up()
        for problem in problems:
            portfolio_within(problem, 2.0 * options.portfolio, options.workers)  # loads all kernels
            print(portfolio_within(problem, options.portfolio, options.workers), flush=True)
        return
    print("| CPU ms | " + " | ".join(f"{p.n_ops} ops x {p.n_devices} ({p.name})" for p in problems) + " |")
    print("|---|" + "---|" * len(problems))
    for name in options.names:
        print(f"| {name} | " + " | ".join(f"{cost(name, problem, options.repeat):.3g}" for problem in problems) + " |", flush=True)


if __name__ == "__main__":
    main()
