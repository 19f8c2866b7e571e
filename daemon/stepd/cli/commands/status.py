"""`stepctl status`: jobs, their state, step time before and now, strategy, last verdict."""

from __future__ import annotations

from typing import Annotated

import typer
from google.protobuf.json_format import MessageToDict
from rich.live import Live
from rich.table import Table

from stepd.cli.client import TIMEOUT_SECONDS, operator
from stepd.cli.options import OutputOption, target_of
from stepd.cli.render import Output, change, console, duration, print_json, table
from stepd.v1 import operator_pb2, runtime_pb2

COLUMNS = (
    "JOB",
    "NAME",
    "PID",
    "STATE",
    "STEPS",
    "BEFORE",
    "NOW",
    "CHANGE",
    "STRATEGY",
    "LAST VERDICT",
    "NOTE",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    context: typer.Context,
    output: OutputOption = Output.table,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it again whenever it changes, until Ctrl-C.")] = False,
    ended: Annotated[bool, typer.Option("--all", "-a", help="Also jobs that have ended.")] = False,
) -> None:
    """Jobs: state, step time before and now, strategy in force, last verdict."""
    request = operator_pb2.ListJobsRequest(ended=ended)
    with operator(target_of(context)) as stub:
        if not watch:
            _show(stub.ListJobs(request, timeout=TIMEOUT_SECONDS), output)
            return
        try:
            if output is Output.json:
                for answer in stub.WatchJobs(request):
                    _show(answer, output)
                return
            with Live(console=console(), auto_refresh=False) as live:
                for answer in stub.WatchJobs(request):
                    live.update(_table(answer), refresh=True)
        except KeyboardInterrupt:
            return


def _show(answer: operator_pb2.ListJobsResponse, output: Output) -> None:
    if output is Output.json:
        print_json(
            [MessageToDict(job, preserving_proto_field_name=True, always_print_fields_with_no_presence=True) for job in answer.job]
        )
        return
    console().print(_table(answer) if answer.job else "no jobs")


def _table(answer: operator_pb2.ListJobsResponse) -> Table:
    rows = []
    for job in answer.job:
        head = (job.id[:8], job.name, str(job.pid))
        if not job.session:
            why = "" if job.compatibility.active else job.compatibility.reason
            rows.append((*head, _life(job, "no session" if job.compatibility.active else "inactive"), *[""] * 6, why))
        rows.extend((*head, *_session(job, session)) for session in job.session)
    return table(COLUMNS, rows)


def _session(job: operator_pb2.Job, session: operator_pb2.Session) -> tuple[str, ...]:
    trial = session.last_trial
    verdict = runtime_pb2.Verdict.Outcome.Name(trial.outcome) if session.HasField("last_trial") else ""
    return (
        _life(job, session.state),
        str(session.steps),
        duration(session.seconds_before),
        duration(session.seconds_now),
        change(session.seconds_before, session.seconds_now),
        session.strategy_id[:8] or "own",
        verdict,
        session.note,
    )


def _life(job: operator_pb2.Job, state: str) -> str:
    if not job.attached:
        return "ended"
    return f"{state} (paused)" if job.paused else state
