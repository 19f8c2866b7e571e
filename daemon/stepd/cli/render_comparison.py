"""How a comparison of algorithms looks: a table, and a plot where matplotlib (the extra `plot`) is installed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from stepd.cli.exits import EXIT_USAGE, CommandError
from stepd.cli.offline_planning import Outcome, best_feasible
from stepd.cli.render import duration, table

PLOT_FORMATS = (".svg", ".png", ".pdf")


def show(out: Console, outcomes: Sequence[Outcome]) -> None:
    """One table a problem: the fastest step that fits first, then those that do not fit or could not run."""
    for problem in dict.fromkeys(outcome.problem for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.problem == problem]
        best = best_feasible(own)
        rows = [
            (
                outcome.algorithm,
                duration(outcome.step_seconds) if not outcome.error else "-",
                f"{outcome.step_seconds / best:.3f}" if outcome.feasible else "-",
                duration(outcome.planning_seconds),
                _remark(outcome),
            )
            for outcome in sorted(own, key=lambda o: (not o.feasible, o.step_seconds))
        ]
        out.print(table(("ALGORITHM", "STEP", "OVER THE BEST", "PLANNED IN", ""), rows, title=f"\n{problem}"))


def _remark(outcome: Outcome) -> str:
    return outcome.error or ("" if outcome.feasible else "does not fit into memory")


def check_plot(path: Path) -> None:
    """Raise CommandError before any planning when `path` cannot be drawn."""
    if path.suffix not in PLOT_FORMATS:
        raise CommandError(f"--plot {path}: the name must end in {', '.join(PLOT_FORMATS)}", EXIT_USAGE)
    if not path.parent.is_dir():
        raise CommandError(f"--plot {path}: there is no directory {path.parent}", EXIT_USAGE)
    if importlib.util.find_spec("matplotlib") is None:
        raise CommandError("--plot needs matplotlib: pip install 'stepd[plot]'", EXIT_USAGE)


def plot(outcomes: Sequence[Outcome], path: Path) -> None:
    """Horizontal bars, a panel a problem: step time over the best that fits; what does not fit is hatched."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    problems = list(dict.fromkeys(outcome.problem for outcome in outcomes))
    most = max(sum(o.problem == problem for o in outcomes) for problem in problems)
    columns = min(3, len(problems))
    rows = math.ceil(len(problems) / columns)
    figure, panels = pyplot.subplots(rows, columns, figsize=(6 * columns, rows * (1 + 0.25 * most)), squeeze=False)
    for panel in panels.flat[len(problems) :]:
        panel.axis("off")
    for panel, problem in zip(panels.flat, problems, strict=False):
        own = [o for o in outcomes if o.problem == problem and math.isfinite(o.step_seconds)][::-1]
        best = best_feasible(own)
        best = best if math.isfinite(best) else min((o.step_seconds for o in own), default=1.0)
        bars = panel.barh([o.algorithm for o in own], [o.step_seconds / best for o in own])
        for bar, outcome in zip(bars, own, strict=True):
            bar.set(color="tab:blue" if outcome.feasible else "lightgrey", hatch="" if outcome.feasible else "//")
        panel.axvline(1.0, color="black", linewidth=0.8)
        panel.set_title(f"{problem} (best: {duration(best)})", fontsize=9)
        panel.set_xlabel("step time over the best; hatched: does not fit into memory", fontsize=8)
        panel.tick_params(labelsize=7)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
