"""`stepctl history JOB`: every trial."""

from __future__ import annotations

import typer
from google.protobuf.json_format import MessageToDict

from stepd.cli.client import TIMEOUT_SECONDS, operator
from stepd.cli.options import JobArgument, OutputOption, target_of
from stepd.cli.render import Output, ago, change, console, duration, print_json, table
from stepd.v1 import operator_pb2, runtime_pb2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(history)


def history(context: typer.Context, job: JobArgument, output: OutputOption = Output.table) -> None:
    """Every trial: predicted, measured, verdict; the best one is marked."""
    with operator(target_of(context)) as stub:
        answer = stub.GetHistory(operator_pb2.GetHistoryRequest(job=job), timeout=TIMEOUT_SECONDS)
    if output is Output.json:
        print_json(
            [MessageToDict(t, preserving_proto_field_name=True, always_print_fields_with_no_presence=True) for t in answer.trial]
        )
        return
    rows = [
        (
            "*" if trial.best else "",
            ago(trial.unix_nanos),
            trial.strategy_id[:8],
            trial.origin,
            trial.algorithm,
            duration(trial.before_seconds),
            duration(trial.predicted_seconds),
            duration(trial.measured_seconds),
            change(trial.before_seconds, trial.measured_seconds),
            runtime_pb2.Verdict.Outcome.Name(trial.outcome),
            trial.reason,
        )
        for trial in answer.trial
    ]
    columns = (
        "BEST",
        "WHEN",
        "STRATEGY",
        "ORIGIN",
        "ALGORITHM",
        "BEFORE",
        "PREDICTED",
        "MEASURED",
        "CHANGE",
        "VERDICT",
        "REASON",
    )
    console().print(table(columns, rows) if rows else "no trials yet")
