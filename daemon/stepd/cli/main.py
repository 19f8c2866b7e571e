"""stepctl: what operators type. Says where the daemon is; turns errors into exit codes. The commands: stepd.cli.commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stepd.cli.exits import CommandError
from stepd.cli.lazy import LazyGroup
from stepd.cli.options import make_target
from stepd.core.errors import StepdError

app = typer.Typer(
    cls=LazyGroup,
    help="Look at and steer jobs under stepd; plan and simulate offline.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


@app.callback()
def root(
    context: typer.Context,
    socket: Annotated[Path | None, typer.Option(envvar="STEPD_SOCKET", help="Unix socket of the daemon.", readable=False)] = None,
    host: Annotated[str, typer.Option(envvar="STEPD_HOST", help="HOST:PORT of a remote daemon.")] = "",
    token: Annotated[str, typer.Option(envvar="STEPD_TOKEN", help="Bearer token of a remote daemon.", show_envvar=True)] = "",
    ca: Annotated[Path | None, typer.Option(help="Certificate authority (PEM) of a remote daemon: use TLS.")] = None,
    cert: Annotated[Path | None, typer.Option(help="Client certificate (PEM).")] = None,
    key: Annotated[Path | None, typer.Option(help="Key of the client certificate (PEM).")] = None,
) -> None:
    """Where the daemon is."""
    context.obj = make_target(socket, host, token, ca, cert, key)


def main() -> None:
    """Console entry. Exit codes: 0 ok, 1 failed, 2 usage or bad input, 3 daemon unreachable, 4 no such job."""
    try:
        app()
    except CommandError as error:
        print(f"stepctl: error: {error}", file=sys.stderr)
        sys.exit(error.code)
    except StepdError as error:
        print(f"stepctl: error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
