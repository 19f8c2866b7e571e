"""Tables and a plot of what bench_planners measured: reads its result files, runs nothing."""

from __future__ import annotations

import importlib.util
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]
SIZES = ((0, 1000), (1000, 5000), (5000, 20000), (20000, 10**9))


def draw(results: Path, out: Path) -> None:
    """Write everything that can be said about the result files in `results`."""
    records = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    if not records:
        print(f"no results in {results}")
        return
    (out / "planners.json").write_text(json.dumps(records, indent=1))
    sections = [
        "# Planning algorithms",
        _summary(records),
        _portfolio(records),
        _times(records),
        _memory(records),
        _quality(records),
        _failures(records),
    ]
    text = "\n\n".join(sections) + "\n"
    (out / "planners.md").write_text(text)
    print("\n\n".join(sections[:5]))
    if importlib.util.find_spec("matplotlib") is not None:
        _plot(records, out / "planners.png")
    print(f"\nall of it: {out / 'planners.md'}, {out / 'planners.json'}, {out / 'planners.png'}")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def _fits(record: Record) -> bool:
    return bool(record.get("feasible")) and record.get("step_seconds") is not None


def _by_problem(records: Sequence[Record]) -> dict[tuple[str, str], dict[str, Record]]:
    table: dict[tuple[str, str], dict[str, Record]] = defaultdict(dict)
    for record in records:
        table[(record["suite"], record["problem"])][record["algorithm"]] = record
    return dict(table)


def _algorithms(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(record["algorithm"] for record in records))


def _best(row: dict[str, Record]) -> float:
    return min((r["step_seconds"] for r in row.values() if _fits(r)), default=math.inf)


def _geometric(values: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(values):.3f}" if values else "-"


def _summary(records: Sequence[Record]) -> str:
    problems = _by_problem(records)
    rows = []
    for algorithm in _algorithms(records):
        ratios = [
            row[algorithm]["step_seconds"] / _best(row) for row in problems.values() if algorithm in row and _fits(row[algorithm])
        ]
        tried = sum(algorithm in row for row in problems.values())
        won = sum(ratio < 1.0 + 1e-9 for ratio in ratios)
        worst = f"{max(ratios):.2f}" if ratios else "-"
        mean = statistics.geometric_mean(ratios) if ratios else math.inf
        rows.append((mean, [algorithm, _geometric(ratios), worst, str(won), f"{len(ratios)} / {tried}"]))
    table = _table(
        ["algorithm", "step over the best, geometric mean", "worst", "best of all", "feasible / problems"],
        [cells for _, cells in sorted(rows, key=lambda row: row[0])],
    )
    return f"## Step time over the best found ({len(problems)} problems; only where the answer fits into memory)\n\n{table}"


def _portfolio(records: Sequence[Record]) -> str:
    """The portfolio against the best of all other algorithms, each with its full sweep."""
    budgets = sorted({r["algorithm"] for r in records if r["algorithm"].startswith("portfolio@")}, key=_budget)
    rows = []
    for budget in budgets:
        ratios, gaps, missed = [], [], 0
        for row in _by_problem(records).values():
            others = _best({k: r for k, r in row.items() if not k.startswith("portfolio@")})
            if budget not in row or not math.isfinite(others):
                continue
            if not _fits(row[budget]):
                missed += 1
                continue
            ratios.append(row[budget]["step_seconds"] / others)
            gaps.append(row[budget]["step_seconds"] / max(row[budget]["lower_bound_seconds"], 1e-12) - 1)
        if ratios:
            worse = sum(ratio > 1 + 1e-9 for ratio in ratios)
            rows.append(
                [budget, str(len(ratios)), f"{statistics.median(ratios):.3f}", _geometric(ratios), f"{min(ratios):.3f}",
                 f"{max(ratios):.3f}", str(worse), str(missed), f"{statistics.median(gaps):.1%}"]
            )  # fmt: skip
    header = ["portfolio", "problems", "median", "geometric mean", "best", "worst", "worse than the best other",
              "infeasible where another fits", "median gap to the lower bound"]  # fmt: skip
    return f"## Portfolio over the best of all other algorithms\n\n{_table(header, rows)}"


def _budget(label: str) -> float:
    return float(label.removeprefix("portfolio@").removesuffix("s"))


def _times(records: Sequence[Record]) -> str:
    rows = []
    for algorithm in _algorithms(records):
        own = [r for r in records if r["algorithm"] == algorithm and "cold_seconds" in r]
        if not own:
            continue
        cells = [algorithm, f"{statistics.median(r['cold_seconds'] for r in own):.2f}"]
        for low, high in SIZES:
            warm = [r["warm_seconds"] or r["cold_seconds"] for r in own if low <= r["ops"] < high]
            cells.append(f"{statistics.median(warm):.3f} / {max(warm):.3f}" if warm else "-")
        rows.append(cells)
    sizes = [f"{low}-{high} ops" if high < 10**9 else f"over {low} ops" for low, high in SIZES]
    table = _table(["algorithm", "cold (median)", *(f"warm, {size} (median / max)" for size in sizes)], rows)
    return f"## Planning time of one call, seconds\n\n{table}"


def _memory(records: Sequence[Record]) -> str:
    rows = []
    for algorithm in _algorithms(records):
        own = [r for r in records if r["algorithm"] == algorithm and "grew_bytes" in r]
        if own:
            largest = max(own, key=lambda r: r["grew_bytes"])
            grew = f"{largest['grew_bytes'] / 2**20:.0f} MiB"
            rows.append([algorithm, grew, f"{largest['problem']} ({largest['ops']} ops x {largest['devices']} devices)"])
    return f"## Memory that planning took, at most\n\n{_table(['algorithm', 'memory', 'on'], rows)}"


def _quality(records: Sequence[Record]) -> str:
    """Milliseconds by the best, and everybody's ratio to it; what does not fit is in parentheses."""
    algorithms = _algorithms(records)
    rows = []
    for (suite, problem), row in _by_problem(records).items():
        best = _best(row)
        some = next((r for r in row.values() if "ops" in r), {})
        cells = [f"{problem} ({suite})", str(some.get("ops", "-")), str(some.get("devices", "-")), f"{best * 1e3:.2f}"]
        for algorithm in algorithms:
            record = row.get(algorithm, {})
            step = record.get("step_seconds")
            if step is None:
                cells.append("-")
            elif not math.isfinite(best):
                cells.append(f"({step * 1e3:.2f} ms)")
            else:
                cells.append(f"{step / best:.3f}" if record["feasible"] else f"({step / best:.3f})")
        rows.append(cells)
    header = ["problem", "ops", "devices", "best, ms", *algorithms]
    return f"## Step time over the best, by problem (in parentheses: does not fit into memory)\n\n{_table(header, rows)}"


def _failures(records: Sequence[Record]) -> str:
    rows = [[r["problem"], r["algorithm"], r["error"].replace("|", "/")] for r in records if r.get("error")]
    return f"## No answer\n\n{_table(['problem', 'algorithm', 'why'], rows) if rows else 'Every algorithm answered everywhere.'}"


def _plot(records: Sequence[Record], path: Path) -> None:
    """Left: for each algorithm, the ratios to the best as a box. Right: planning time by size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    problems = _by_problem(records)
    ratios = {
        a: [row[a]["step_seconds"] / _best(row) for row in problems.values() if a in row and _fits(row[a])]
        for a in _algorithms(records)
    }
    order = sorted((a for a in ratios if ratios[a]), key=lambda a: -statistics.geometric_mean(ratios[a]))
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 0.32 * len(order) + 2))
    left.boxplot([ratios[a] for a in order], orientation="horizontal")
    left.set_yticks(range(1, len(order) + 1), [f"{a} ({len(ratios[a])})" for a in order])
    left.set_xscale("log")
    left.set_xlabel("step time over the best found (problems where it fits into memory)")
    for algorithm in order:
        own = sorted((r["ops"], r["warm_seconds"]) for r in records if r["algorithm"] == algorithm and r.get("warm_seconds"))
        if own:
            right.plot(*zip(*own, strict=True), marker=".", linewidth=0.7, label=algorithm)
    right.set(xscale="log", yscale="log", xlabel="ops", ylabel="seconds of one warm call")
    right.legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
