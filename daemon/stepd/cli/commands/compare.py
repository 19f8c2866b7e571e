"""`stepctl compare PROBLEM...`: every algorithm on every problem, as a table and a plot, without a daemon."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from stepd.cli.client import chatter
from stepd.cli.offline_planning import make_options, outcome
from stepd.cli.options import SEEDS, OutputOption
from stepd.cli.problem_files import Reading, read_problem
from stepd.cli.problem_options import with_problem_options
from stepd.cli.render import Output, console, print_json
from stepd.cli.render_comparison import check_plot, plot, show
from stepd.core.placement import registry


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compare")(with_problem_options(compare_command))


def compare_command(
    problems: Annotated[list[Path], typer.Argument(help="Problem, workload or GraphDef files.", metavar="PROBLEM...")],
    reading: Reading,
    algorithm: Annotated[list[str] | None, typer.Option(help="Only this one; may be given again. Default: all.")] = None,
    budget: Annotated[float, typer.Option(help="Seconds that each search may take; compiling comes on top.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of the searches.", **SEEDS)] = 0,
    workers: Annotated[int, typer.Option(help="Cores to use; 0: all.", min=0)] = 0,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw it (.svg, .png, .pdf); needs stepd[plot].")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Plan every PROBLEM with every algorithm, each with its full sweep, and compare the simulated steps."""
    names = algorithm or list(registry.names())
    for name in names:
        registry.find(name)
    if plot_file is not None:
        check_plot(plot_file)
    options = make_options(budget, seed, workers)
    loaded = [read_problem(path, reading) for path in problems]
    results = []
    for problem in loaded:
        for name in names:
            chatter(f"{problem.name}: {name}")
            results.append(outcome(problem, name, options))
    if output is Output.json:
        print_json([asdict(result) | {"step_seconds": result.step_seconds if not result.error else None} for result in results])
    else:
        show(console(), results)
    if plot_file is not None:
        plot(results, plot_file)
        chatter(f"plot: {plot_file}")
