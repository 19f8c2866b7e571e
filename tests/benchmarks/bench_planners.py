"""Planning algorithms on the problem zoo and on published workloads: quality, planning time, memory, and the portfolio over time.

    python tests/benchmarks/bench_planners.py [--quick] [--only SUBSTRING ...] [--algorithms NAME ...] [--time-limit S] [--tables]
                                             [--budgets S ...] [--cpu-seconds]

Needs the extras daemon, cpu (to build the zoo), exact, metis and plot. Every (problem, algorithm) is one process with a time limit,
and one JSON file in build/bench/planners/: a run that was stopped, or ended by `--time-limit`, goes on where it was. Then tables
(planners.md), all results (planners.json) and plots are drawn from those files; `--tables` draws only.

Quality: the best of an algorithm's full sweep, simulated. Planning time: of one call with the sweep's first parameters, cold (the
first in its process, compiling or loading kernels included) and warm (the second). The portfolio's kernels are loaded before its
budget begins, as `stepctl plan` does. Memory: what the process grew by.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from planner_tables import draw

PORTFOLIO_BUDGETS = (1.0, 10.0, 60.0)
QUICK = (
    "lenet-b256-nvlink4", "alexnet-b256-dp2-nvlink2", "vgg19-b64-nvlink4", "inception_v3-b64-nvlink4", "rnnlm-2-2048-b128-pesto",
    "gpt3-330m-b1-moirai-inter", "transformer-36k-b256-nvlink8", "bert24_training", "gnmt_training", "bert_l-3_training",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten problems, the portfolio at 1 and 10 s")
    parser.add_argument("--only", nargs="*", default=[], help="problems whose name holds one of these")
    parser.add_argument("--algorithms", nargs="*", default=[], help="these algorithms; default: all")
    parser.add_argument("--tables", action="store_true", help="run nothing, draw tables and plots of what there is")
    parser.add_argument("--fresh", action="store_true", help="run again what has a result")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which nothing new is begun")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that one algorithm may take on one problem")
    parser.add_argument("--search-budget", type=float, default=10.0, help="seconds that each search but the portfolio may use")
    parser.add_argument(
        "--budgets", type=float, nargs="+", default=[], help="of the portfolio; default: 1, 10 and, not --quick, 60 s"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--cpu-seconds", action="store_true", help="one worker, times in its CPU seconds: for a machine with other work"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument("--zoo", type=Path, default=Path("build/zoo"))
    parser.add_argument(
        "--workloads",
        type=Path,
        default=Path(os.environ.get("STEPD_WORKLOADS", "build/workloads")),
        help="directory of dnn-partitioning's JSON files, searched below; default: $STEPD_WORKLOADS",
    )
    arguments = parser.parse_args()
    results = arguments.out / "planners"
    results.mkdir(parents=True, exist_ok=True)
    if not arguments.tables:
        _run_all(arguments, results)
    draw(results, arguments.out)
    return 0


def _run_all(arguments: argparse.Namespace, results: Path) -> None:
    from stepd.core.placement import registry

    wanted = arguments.only or (QUICK if arguments.quick else [""])
    build = [sys.executable, str(Path(__file__).parent / "build_zoo.py"), "--out", str(arguments.zoo), "--only", *wanted]
    subprocess.run(build, check=True)
    budgets = arguments.budgets or (PORTFOLIO_BUDGETS[:2] if arguments.quick else PORTFOLIO_BUDGETS)
    runs = [(name, arguments.search_budget) for name in arguments.algorithms or registry.names() if name != "portfolio"]
    if not arguments.algorithms or "portfolio" in arguments.algorithms:
        runs += [("portfolio", budget) for budget in budgets]
    problems = [path for path in _problems(arguments) if any(part in path.name for part in wanted)]
    end = time.monotonic() + arguments.time_limit
    for k, path in enumerate(problems):
        for algorithm, budget in runs:
            if time.monotonic() > end:
                print(f"time is up at {path.name}, {algorithm}: the same command goes on from there", flush=True)
                return
            _run_one(arguments, results, path, algorithm, budget)
        print(f"[{k + 1}/{len(problems)}] {path.name}", flush=True)


def _problems(arguments: argparse.Namespace) -> list[Path]:
    """Small files first: a run that is stopped early has compared the most."""
    files = [*arguments.zoo.glob("*.json.gz"), *arguments.workloads.rglob("*.json")]
    files = [path for path in files if "expert" not in path.stem]
    return sorted(files, key=lambda path: path.stat().st_size * (1 if path.suffix == ".json" else 12))


def _run_one(arguments: argparse.Namespace, results: Path, path: Path, algorithm: str, budget: float) -> None:
    suite = "zoo" if path.suffix == ".gz" else "-".join(path.parent.parts[-2:])
    label = f"portfolio@{budget:g}s" if algorithm == "portfolio" else algorithm
    name = path.name.split(".json")[0]
    target = results / f"{suite}--{name}--{label}.json"
    if target.exists() and not arguments.fresh:
        return
    command = [
        sys.executable, str(Path(__file__).parent / "planner_run.py"), str(path), algorithm,
        str(budget), "cpu" if arguments.cpu_seconds else str(arguments.workers), str(arguments.limit),
    ]  # fmt: skip
    record = {"suite": suite, "problem": name, "algorithm": label}
    # The sweep stops itself at the limit; this is for a single call that does not come back.
    patience = (2 * arguments.limit + budget) * (4 if arguments.cpu_seconds else 1)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        record["error"] = f"no answer within {patience:.0f} s"
    else:
        if done.returncode:
            record["error"] = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        else:
            record |= json.loads(done.stdout.splitlines()[-1])
    target.write_text(json.dumps(record))


if __name__ == "__main__":
    sys.exit(main())
