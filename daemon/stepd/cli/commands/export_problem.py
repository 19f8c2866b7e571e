"""`stepctl export-problem JOB -o problem.json`: the live planning problem, for `stepctl plan` and `stepctl simulate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stepd.cli.client import chatter, operator
from stepd.cli.exits import EXIT_USAGE, CommandError
from stepd.cli.options import JobArgument, SessionOption, target_of
from stepd.v1 import operator_pb2

ASSEMBLY_SECONDS = 300.0
"""A planner process starts and assembles the problem; on a busy machine that takes a while."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("export-problem")(export_problem)


def export_problem(
    context: typer.Context,
    job: JobArgument,
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write; - writes standard output.")] = Path("-"),
    session: SessionOption = "",
) -> None:
    """Write the job's planning problem, with learned costs, as PROBLEM_FORMAT JSON."""
    request = operator_pb2.ExportProblemRequest(job=job, session_id=session)
    with operator(target_of(context)) as stub:
        text = stub.ExportProblem(request, timeout=ASSEMBLY_SECONDS).problem_json
    if str(output) == "-":
        sys.stdout.write(text.decode() + "\n")
        return
    try:
        output.write_bytes(text)
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror}", EXIT_USAGE) from error
    chatter(f"wrote {output}")
