"""Options that commands share: where the daemon is, and the output format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stepd.cli.client import Target
from stepd.cli.render import Output

JobArgument = Annotated[str, typer.Argument(help="Job: its id, a unique prefix of it, or a unique name.", metavar="JOB")]
OutputOption = Annotated[Output, typer.Option("-o", "--output", help="Output format.")]
SessionOption = Annotated[str, typer.Option("--session", help="Session id; needed when a job has several live ones.")]
SEEDS: dict[str, Any] = {"min": -(2**63), "max": 2**63 - 1}
"""What kernels take as a seed."""


def target_of(context: typer.Context) -> Target:
    """The daemon that the options before the command name."""
    target = context.find_object(Target)
    return target if target is not None else Target()


def make_target(socket: Path | None, host: str, token: str, ca: Path | None, cert: Path | None, key: Path | None) -> Target:
    """A Target of options; the default socket when none is given."""
    given = {"host": host, "token": token, "ca": ca, "cert": cert, "key": key}
    return Target(socket=socket, **given) if socket else Target(**given)  # type: ignore[arg-type]
