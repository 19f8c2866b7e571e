"""`stepctl version`: of this command and of the daemon."""

from __future__ import annotations

from importlib.metadata import version as installed

import typer

from stepd.cli.client import TIMEOUT_SECONDS, operator
from stepd.cli.exits import EXIT_UNREACHABLE, CommandError
from stepd.cli.options import OutputOption, target_of
from stepd.cli.render import Output, print_json
from stepd.v1 import operator_pb2


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(version)


def version(context: typer.Context, output: OutputOption = Output.table) -> None:
    """Versions of stepctl and, when it is reachable, of the daemon."""
    daemon = ""
    try:
        with operator(target_of(context)) as stub:
            daemon = stub.GetVersion(operator_pb2.GetVersionRequest(), timeout=TIMEOUT_SECONDS).version
    except CommandError as error:
        if error.code != EXIT_UNREACHABLE:
            raise
    if output is Output.json:
        print_json({"stepctl": installed("stepd"), "daemon": daemon or None})
        return
    print(f"stepctl {installed('stepd')}")
    print(f"daemon {daemon or 'not reachable'}")
