"""The portfolio against every other algorithm's full sweep and human experts, on problems that it was not made for.

    python tests/benchmarks/bench_quality.py [--suite random zoo workloads] [--only PART ...] [--budgets 1 10] [--label NAME]
        [--searches S] [--rivals all|heuristics|searches] [--without ALGORITHM ...] [--as-is] [--time-limit S] [--tables]

Problems: `random_problems.suite` (random), `random_dags.dags` (dags), the zoo (build_zoo.py; as it is, on eight devices, and with
memory that no single device suffices for) and the files of dnn-partitioning. All in one process with one worker and budgets in
seconds of its CPU time, compiling aside, so that what else the machine does changes little. Every result is one JSON file in
build/bench/quality/: what was stopped, or ended by `--time-limit`, goes on where it was. `--label` names a version of the portfolio
to compare with others. Then the table.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np

from stepd.kernels import cache

cache.use()

from expert_placements import expert_answers  # noqa: E402

from stepd.cli.problem_files import Reading, read_problem  # noqa: E402
from stepd.core.bounds import lower_bound  # noqa: E402
from stepd.core.errors import StepdError  # noqa: E402
from stepd.core.placement import registry  # noqa: E402
from stepd.core.placement.registry import PlanOptions  # noqa: E402
from stepd.core.portfolio import planner as portfolio  # noqa: E402
from stepd.core.portfolio.start_order import natural_priority  # noqa: E402
from stepd.core.problem import Problem  # noqa: E402
from stepd.core.simulator import simulate, simulate_placement  # noqa: E402
from stepd.core.uncompiling import Uncompiling  # noqa: E402
from stepd.core.what_if import with_devices  # noqa: E402

SWEEP_SECONDS = 60.0
"""CPU seconds after which no further parameter set of an algorithm is begun."""
SOLVERS = ("pesto", "moirai", "exact")
"""With two threads, and wall clock where the others have CPU time."""
SEARCHES = ("mcmc", "cross-entropy", *SOLVERS)
Load = Callable[[], Problem]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", nargs="*", default=["random", "zoo", "workloads"])
    parser.add_argument("--only", nargs="*", default=[""], help="problems whose name holds one of these")
    parser.add_argument("--budgets", nargs="*", type=float, default=[1.0, 10.0])
    parser.add_argument("--label", default="", help="name of this version of the portfolio")
    parser.add_argument("--searches", type=float, default=0.0, help="seconds for each search and solver; 0: leave them out")
    parser.add_argument("--rivals", choices=("all", "heuristics", "searches"), default="all")
    parser.add_argument("--as-is", action="store_true", help="the zoo without its variants of eight devices and tight memory")
    parser.add_argument("--without", nargs="*", default=[], help="algorithms to leave out")
    parser.add_argument("--count", type=int, default=24, help="random problems")
    parser.add_argument("--seed", type=int, default=1, help="of the random problems")
    parser.add_argument("--ops", type=int, default=800, help="of the random problems: a third to three times as many")
    parser.add_argument("--largest", type=int, default=40_000, help="ops of the largest problem")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds after which nothing new is begun")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    parser.add_argument("--out", type=Path, default=Path("build/bench/quality"))
    parser.add_argument("--zoo", type=Path, default=Path("build/zoo"))
    parser.add_argument("--workloads", type=Path, default=Path(os.environ.get("STEPD_WORKLOADS", "build/workloads")))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.tables:
        end = time.monotonic() + arguments.time_limit
        for name, load in problems(arguments):
            if any(part in name for part in arguments.only) and not run(arguments, name, load, end):
                print(f"time is up at {name}: the same command goes on from there", flush=True)
                break
    table(arguments.out, arguments.only)
    return 0


def problems(arguments: argparse.Namespace) -> Iterator[tuple[str, Load]]:
    """Names, and how to get what they stand for."""
    if "random" in arguments.suite:
        from random_problems import suite

        for problem in suite(arguments.count, arguments.seed, arguments.ops):
            yield f"random-{problem.name}", lambda problem=problem: problem
    if "dags" in arguments.suite:
        from random_dags import dags

        for problem in dags(arguments.count, arguments.seed, arguments.ops):
            yield f"dag-{problem.name}", lambda problem=problem: problem
    files: list[Path] = []
    if "zoo" in arguments.suite:
        files += sorted(arguments.zoo.glob("*.json.gz"), key=lambda path: path.stat().st_size)
    if "workloads" in arguments.suite:
        files += sorted(arguments.workloads.rglob("*.json"), key=lambda path: path.stat().st_size)
    for path in files:
        if "expert" in path.stem:
            continue
        kind = ""
        if path.suffix == ".json":  # some names are there once in layers and once in operators
            kind = f"{path.parent.parent.name.split('-')[0]}-{path.parent.name.removesuffix('Graphs').lower()}-"
        name = kind + path.name.split(".json")[0]
        yield name, lambda path=path: read_problem(path, Reading())
        if path.suffix == ".gz" and not arguments.as_is:
            yield f"{name}+8", lambda path=path: with_devices(read_problem(path, Reading()), 8)
            yield f"{name}+tight", lambda path=path: tight(read_problem(path, Reading()))


def tight(problem: Problem) -> Problem:
    """`problem` with the memory of each device 1.4 times its share of what everything takes on one device."""
    order = natural_priority(problem)
    least = None
    for device in range(problem.n_devices):
        if np.isfinite(problem.seconds[:, device]).all():
            placement = np.full(problem.n_ops, device, dtype=np.int32)
            peak = int(simulate_placement(problem, placement, order).device_peak_bytes[device])
            least = peak if least is None else min(least, peak)
    if least is None:
        return problem
    memory = int(1.4 * least / problem.n_devices)
    return replace(problem, devices=tuple(replace(device, memory_bytes=memory) for device in problem.devices))


def run(arguments: argparse.Namespace, name: str, load: Load, end: float) -> bool:
    """All that is missing of one problem; False when the time is over."""
    names = [a for a in registry.names() if registry.find(a).effort != "search" and a != "fastt-os-dpos"]
    todo = {a: (a, 10.0) for a in ("expert placements", *names)} if arguments.rivals != "searches" else {}
    if arguments.searches and arguments.rivals != "heuristics":
        todo |= {a: (a, arguments.searches) for a in SEARCHES}
    todo = {a: what for a, what in todo.items() if a not in arguments.without}
    todo |= {
        f"portfolio@{budget:g}s{arguments.label and '-' + arguments.label}": ("portfolio", budget) for budget in arguments.budgets
    }
    missing = {label: what for label, what in todo.items() if not (arguments.out / f"{name}--{label}.json").exists()}
    if not missing:
        return True
    problem = replace(load(), split_choices=())  # the same ops for all
    if problem.n_ops > arguments.largest:
        return True
    portfolio.warm_up()
    for label, (algorithm, budget) in missing.items():
        if time.monotonic() > end:
            return False
        record = measured(problem, algorithm, budget) | {"problem": name, "algorithm": label, "ops": problem.n_ops}
        record |= {"devices": problem.n_devices, "lower_bound_seconds": lower_bound(problem)}
        (arguments.out / f"{name}--{label}.json").write_text(json.dumps(record))
        if algorithm == "portfolio":
            print(
                f"{name} {problem.n_ops}x{problem.n_devices} {label} {record.get('step_seconds')} {record.get('origin')}",
                flush=True,
            )
    return True


def measured(problem: Problem, algorithm: str, budget: float) -> dict[str, Any]:
    """The best of one algorithm's full sweep, simulated."""
    found: list[tuple[bool, float, str]] = []
    error = ""
    workers = 2 if algorithm in SOLVERS else 1
    with closing(Uncompiling(time.process_time)) as clock:
        began = clock.now()
        for answer in answers(problem, algorithm, PlanOptions(budget_seconds=budget, clock=clock.now, workers=workers)):
            if isinstance(answer, StepdError):
                error = str(answer)
                continue
            simulation = simulate(problem, answer)
            origin = str(answer.planner.get("origin", answer.planner.get("algorithm")))
            found.append((not simulation.feasible, simulation.step_seconds, origin))
            if clock.now() - began > max(budget, SWEEP_SECONDS):
                break
        facts: dict[str, Any] = {"cpu_seconds": clock.now() - began, "error": error}
    if found:
        infeasible, step, origin = min(found)
        facts |= {"feasible": not infeasible, "step_seconds": step, "origin": origin}
    return facts


def answers(problem: Problem, algorithm: str, options: PlanOptions) -> Iterator[Any]:
    """Strategies of every parameter set, or why there is none."""
    if algorithm == "expert placements":
        yield from expert_answers(problem)
        return
    for own in registry.swept(algorithm, options):
        try:
            yield registry.plan(algorithm, problem, own)
        except StepdError as error:
            yield error


def table(out: Path, only: list[str]) -> None:
    """Each portfolio label against the best of all that is no portfolio."""
    rows: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for path in sorted(out.glob("*.json")):
        record = json.loads(path.read_text())
        if any(part in record["problem"] for part in only):
            rows[record["problem"]][record["algorithm"]] = record
    ratios: dict[str, list[float]] = defaultdict(list)
    missed: dict[str, int] = defaultdict(int)
    for name, row in sorted(rows.items()):
        fits = {a: r["step_seconds"] for a, r in row.items() if r.get("feasible")}
        others = {a: s for a, s in fits.items() if not a.startswith("portfolio@")}
        best = min(others, key=lambda a: others[a], default="")
        bound = max(r["lower_bound_seconds"] for r in row.values())
        cells = []
        for label in sorted(a for a in row if a.startswith("portfolio@")):
            if label not in fits:
                missed[label] += bool(best)
                cells.append(f"{label[10:]} -")
                continue
            if best:
                ratios[label].append(fits[label] / others[best])
            cells.append(
                f"{label[10:]} {fits[label] / others[best] if best else 0:.3f} (gap {fits[label] / max(bound, 1e-12) - 1:.0%})"
            )
        some = next(iter(row.values()))
        time_text = f"{others[best] * 1e3:.2f} ms by {best}" if best else "nothing fits"
        print(f"{name} {some['ops']}x{some['devices']}: {time_text}; {'; '.join(cells)}")
    for label, values in sorted(ratios.items()):
        worse = sum(value > 1 + 1e-9 for value in values)
        print(
            f"{label}: {len(values)} problems, median {statistics.median(values):.3f}, geometric mean "
            f"{statistics.geometric_mean(values):.3f}, best {min(values):.3f}, worst {max(values):.3f}, worse {worse}, "
            f"without an answer where another has one {missed[label]}"
        )


if __name__ == "__main__":
    sys.exit(main())
