"""`stepctl activate JOB strategy.json`: try a strategy of one's own, guarded like any other."""

from __future__ import annotations

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer

from stepd.cli.client import TIMEOUT_SECONDS, chatter, operator
from stepd.cli.exits import EXIT_USAGE, CommandError
from stepd.cli.options import JobArgument, OutputOption, SessionOption, target_of
from stepd.cli.render import Output, print_json
from stepd.v1 import operator_pb2, strategy_pb2


class Way(str, enum.Enum):
    """How to switch."""

    auto = "auto"
    in_session = "in-session"
    restart = "restart"


WAYS = {
    Way.auto: strategy_pb2.WAY_AUTO,
    Way.in_session: strategy_pb2.WAY_IN_SESSION,
    Way.restart: strategy_pb2.WAY_RESTART,
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(activate)


def activate(
    context: typer.Context,
    job: JobArgument,
    strategy: Annotated[Path, typer.Argument(help="Strategy file (JSON); - reads standard input.")],
    output: OutputOption = Output.table,
    session: SessionOption = "",
    way: Annotated[Way, typer.Option(help="How to switch.")] = Way.auto,
    pin: Annotated[bool, typer.Option("--pin", help="Keep it whatever the guard measures.")] = False,
) -> None:
    """Switch a job to a strategy; the guard keeps it only when steps become faster."""
    try:
        text = sys.stdin.buffer.read() if str(strategy) == "-" else strategy.read_bytes()
    except OSError as error:
        raise CommandError(f"cannot read the strategy {strategy}: {error.strerror}", EXIT_USAGE) from error
    request = operator_pb2.ActivateRequest(job=job, session_id=session, strategy_json=text, way=WAYS[way], pin=pin)
    with operator(target_of(context)) as stub:
        answer = stub.ActivateStrategy(request, timeout=TIMEOUT_SECONDS)
    if output is Output.json:
        print_json({"strategy_id": answer.strategy_id, "session_id": answer.session_id})
        return
    print(answer.strategy_id)
    chatter(f"sent to session {answer.session_id}; `stepctl history {job}` shows the verdict")
