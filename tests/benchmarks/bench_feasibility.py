"""Does the portfolio find a strategy that fits where one is known to exist?

    python tests/benchmarks/bench_feasibility.py [--count 39] [--seed 1] [--budget 10] [--out FILE]

Problems: `planted_memory.planted`, each device with the memory that a planted strategy needs, times 1.0 to 1.1. CPU seconds of one
core; a problem ends with the first strategy that fits. With `--out` results are kept, and what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from stepd.kernels import cache


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=39)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smallest", type=int, default=100, help="ops")
    parser.add_argument("--largest", type=int, default=3000, help="ops")
    parser.add_argument("--budget", type=float, default=10.0)
    parser.add_argument("--only", default="", help="problems whose name holds this")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which nothing new is begun")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    cache.use()  # before numba is imported
    from planted_memory import planted

    from stepd.core.portfolio import planner as portfolio
    from stepd.daemon.warm_up import warm_up

    kept = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.exists() else {}
    for _ in warm_up():  # the clock is this process' CPU time: compiling would count
        pass
    end = time.monotonic() + arguments.time_limit
    taken: list[float] = []
    for problem in planted(arguments.count, arguments.seed, arguments.smallest, arguments.largest):
        if arguments.only not in problem.name or (problem.name not in kept and time.monotonic() > end):
            continue
        if problem.name not in kept:
            seconds, by = first_that_fits(portfolio, problem, arguments.budget)
            kept[problem.name] = [seconds, by]
            print(f"{problem.name} ({problem.n_ops} ops): {seconds:.2f} s by {by}", flush=True)
            if arguments.out:
                arguments.out.write_text(json.dumps(kept))
        taken.append(kept[problem.name][0])
    for limit in (1.0, arguments.budget):
        print(f"within {limit:g} s: {sum(seconds <= limit for seconds in taken)} of {len(taken)}")
    return 0


def first_that_fits(portfolio: Any, problem: Any, budget: float) -> tuple[float, str]:
    """CPU seconds until the first strategy that fits, and where it came from; inf when there was none."""
    began = time.process_time()
    options = portfolio.PlanOptions(budget_seconds=budget, clock=time.process_time)
    for strategy in portfolio.search(problem, options):
        if strategy.planner["feasible"]:
            return time.process_time() - began, str(strategy.planner["origin"])
    return float("inf"), "nothing"


if __name__ == "__main__":
    sys.exit(main())
