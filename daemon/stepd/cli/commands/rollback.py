"""`stepctl rollback JOB`: back to the program's own placement."""

from __future__ import annotations

import typer

from stepd.cli.client import TIMEOUT_SECONDS, chatter, operator
from stepd.cli.options import JobArgument, OutputOption, SessionOption, target_of
from stepd.cli.render import Output, print_json
from stepd.v1 import operator_pb2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rollback)


def rollback(context: typer.Context, job: JobArgument, output: OutputOption = Output.table, session: SessionOption = "") -> None:
    """Back to the program's own placement; the strategy in force is not proposed again."""
    with operator(target_of(context)) as stub:
        stub.RollBack(operator_pb2.RollbackRequest(job=job, session_id=session), timeout=TIMEOUT_SECONDS)
    if output is Output.json:
        print_json({"job": job, "rolled_back": True})
    chatter(f"rollback sent; `stepctl show {job}` shows what is in force")
