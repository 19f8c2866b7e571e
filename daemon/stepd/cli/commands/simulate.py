"""`stepctl simulate PROBLEM STRATEGY`: what a step of a strategy costs, and why, without a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepd.cli.exits import EXIT_FAILED
from stepd.cli.options import OutputOption
from stepd.cli.problem_files import Reading, naming, read_problem, read_strategy
from stepd.cli.problem_options import with_problem_options
from stepd.cli.render import Output, console, print_json
from stepd.cli.render_simulation import as_json, show
from stepd.core.errors import StrategyError
from stepd.core.simulator import simulate


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(with_problem_options(simulate_command))


def simulate_command(
    problem: Annotated[Path, typer.Argument(help="Problem, workload or GraphDef file; may be gzipped.", metavar="PROBLEM")],
    strategy: Annotated[Path, typer.Argument(help="Strategy file.", metavar="STRATEGY")],
    reading: Reading,
    output: OutputOption = Output.table,
) -> None:
    """Simulate one step: its time, peak memory, how busy devices and links are, and the critical path.

    Exit code 1 when the strategy does not fit into memory.
    """
    loaded = read_problem(problem, reading)
    chosen = read_strategy(strategy, loaded)
    with naming(strategy, StrategyError):
        simulation = simulate(loaded, chosen)
    if output is Output.json:
        print_json(as_json(loaded, chosen, simulation))
    else:
        show(console(), loaded, chosen, simulation)
    if not simulation.feasible:
        raise typer.Exit(EXIT_FAILED)
