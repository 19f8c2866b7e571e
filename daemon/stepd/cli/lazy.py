"""A group of commands that imports a command's module when that command is asked for.

A health check runs every few seconds beside a training job: it must not import what plans offline (numba and scipy take more than
a second of a core).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from stepd.cli.commands import MODULES, OFFLINE
from stepd.kernels import cache


class LazyGroup(TyperGroup):
    """The commands of `stepd.cli.commands`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, without an import."""
        return [*MODULES]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or None when there is none of this name."""
        module = MODULES.get(cmd_name)
        return None if module is None else _commands_of(module).get(cmd_name)


def _commands_of(module: str) -> dict[str, Any]:
    if module in OFFLINE:
        cache.use()  # before the import: numba reads the environment then
    app = typer.Typer()
    import_module(f"stepd.cli.commands.{module}").register(app)
    return dict(get_group(app).commands)
