"""`stepctl plan PROBLEM -o strategy.json`: search a strategy for a problem file, without a daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stepd.cli.client import chatter
from stepd.cli.exits import EXIT_FAILED
from stepd.cli.offline_planning import compiled, make_options, plan
from stepd.cli.options import SEEDS
from stepd.cli.problem_files import Reading, check_target, read_problem, write_strategy
from stepd.cli.problem_options import with_problem_options
from stepd.cli.render import Output, duration, print_json
from stepd.core.placement import registry


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("plan")(with_problem_options(plan_command))


def plan_command(
    problem: Annotated[Path, typer.Argument(help="Problem, workload or GraphDef file; may be gzipped.", metavar="PROBLEM")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the strategy goes (.gz: gzipped).", metavar="FILE")],
    reading: Reading,
    algorithm: Annotated[str, typer.Option(help=f"One of: {', '.join(registry.names())}.")] = "portfolio",
    budget: Annotated[
        float, typer.Option(help="Seconds that a search may take; compiling kernels, once per machine and version, comes on top.")
    ] = 10.0,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same strategy when a search ends by itself, or with --work.", **SEEDS)
    ] = 0,
    work: Annotated[
        int,
        typer.Option(
            help="End a search after so much work (rounds; CP-SAT: deterministic seconds) instead of after --budget: a plan that "
            "can be repeated bit for bit. 0: by the budget.",
            min=0,
            max=2**31 - 1,
        ),
    ] = 0,
    workers: Annotated[int, typer.Option(help="Cores to use; 0: all.", min=0)] = 0,
    format_: Annotated[Output, typer.Option("--format", help="Format of the summary.")] = Output.table,
) -> None:
    """Find a placement and an execution order for PROBLEM and write them as a strategy file.

    Exit code 1 when the best strategy found does not fit into memory; it is written all the same. Ctrl-C ends the search: the best
    so far is written.
    """
    registry.find(algorithm)
    check_target(out)
    options = make_options(budget, seed, workers, work)
    loaded = read_problem(problem, reading)
    if not compiled():
        chatter("stepctl: compiling the planners' kernels: once per machine and version of stepd, a minute or so")
    strategy = plan(loaded, algorithm, options)
    write_strategy(out, strategy)
    facts = strategy.planner
    step, bound = strategy.predicted_step_seconds, float(facts["lower_bound_seconds"])
    feasible = bool(facts.get("feasible", True))
    if format_ is Output.json:
        print_json(
            {
                "strategy": str(out),
                "predicted_step_seconds": step,
                "lower_bound_seconds": bound,
                "gap": max(0.0, step / bound - 1) if bound > 0 else None,
                "feasible": feasible,
                "planning_seconds": facts["seconds"],
                "compiling_seconds": facts["compiling_seconds"],
                "algorithm": facts.get("algorithm", algorithm),
            }
        )
    else:
        gap = f", {max(0.0, step / bound - 1):.1%} above the lower bound of {duration(bound)}" if bound > 0 else ""
        compiling = f" after compiling for {duration(facts['compiling_seconds'])}" if facts["compiling_seconds"] > 0 else ""
        took = f" in {duration(facts['seconds'])}" if facts["seconds"] > 0 else ""
        print(f"{out}: a step of {duration(step)}{gap}; planned{took} by {algorithm}{compiling}")
    if not feasible:
        chatter(f"stepctl: warning: {problem}: no strategy was found that fits into memory; this one does not (stepctl simulate)")
        raise typer.Exit(EXIT_FAILED)
