"""`stepctl pause JOB` and `stepctl resume JOB`."""

from __future__ import annotations

from typing import Annotated

import typer

from stepd.cli.client import TIMEOUT_SECONDS, chatter, operator
from stepd.cli.options import JobArgument, OutputOption, target_of
from stepd.cli.render import Output, print_json
from stepd.v1 import operator_pb2


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(pause)
    app.command()(resume)


def pause(
    context: typer.Context,
    job: JobArgument,
    output: OutputOption = Output.table,
    seconds: Annotated[float, typer.Option("--for", min=0, help="Seconds; 0: until `stepctl resume`.")] = 0.0,
) -> None:
    """No profiles, plans or switches: the job runs as it does now."""
    with operator(target_of(context)) as stub:
        stub.PauseJob(operator_pb2.PauseRequest(job=job, seconds=seconds), timeout=TIMEOUT_SECONDS)
    if output is Output.json:
        print_json({"job": job, "paused": True, "seconds": seconds})
    chatter(f"paused {f'for {seconds:g} s' if seconds else 'until resumed'}")


def resume(context: typer.Context, job: JobArgument, output: OutputOption = Output.table) -> None:
    """End a pause: profiles, plans and switches go on."""
    with operator(target_of(context)) as stub:
        stub.ResumeJob(operator_pb2.ResumeRequest(job=job), timeout=TIMEOUT_SECONDS)
    if output is Output.json:
        print_json({"job": job, "paused": False})
    chatter("resumed")
