"""`stepd serve` and `stepd config`: arguments in, exit codes out. Knows nothing but the wiring's front
door.
"""

from __future__ import annotations

import asyncio
import enum
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from stepd.core.errors import PlannerError, StepdError
from stepd.daemon import installed
from stepd.daemon.config import Configuration, load
from stepd.daemon.errors import ConfigError
from stepd.kernels import cache, cores

app = typer.Typer(
    help="The stepd daemon: learns what training steps cost and proposes where ops should run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", envvar="STEPD_CONFIG", help="TOML file with settings; see `stepd config`.", readable=False),
]
Socket = Annotated[Path | None, typer.Option(help="Unix socket to serve on.", readable=False)]
StateDir = Annotated[Path | None, typer.Option(help="Folder for the database.", readable=False)]
Listen = Annotated[str | None, typer.Option(help="Also serve TCP on HOST:PORT.")]
MetricsPort = Annotated[int | None, typer.Option(help="Prometheus metrics on 127.0.0.1.")]
Setting = Annotated[list[str] | None, typer.Option("--set", help="Any setting, as name=value; repeatable.")]


def _load(config: Path | None, sets: list[str] | None, **options: Any) -> Configuration:
    for item in sets or ():
        name, separator, value = item.partition("=")
        if not separator:
            raise ConfigError(f"--set {item}: write name=value")
        options[name] = value
    loaded = load(config, options, os.environ)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: it would start a thread on each core, for small fits
    from stepd.core.placement import registry

    try:
        registry.find(loaded.settings.algorithm)
    except PlannerError as error:
        raise ConfigError(f"{loaded.origins['algorithm']}: algorithm: {error}") from error
    return loaded


class Output(str, enum.Enum):
    """Output formats."""

    table = "table"
    json = "json"


@app.command()
def serve(
    config: ConfigFile = None,
    socket: Socket = None,
    state_dir: StateDir = None,
    listen: Listen = None,
    metrics_port: MetricsPort = None,
    sets: Setting = None,
) -> None:
    """Serve hooks and stepctl until SIGTERM."""
    configuration = _load(config, sets, socket=socket, state_dir=state_dir, listen=listen, metrics_port=metrics_port)
    from stepd.daemon.logs import configure  # imported when needed: `stepd config` stays quick
    from stepd.daemon.serve import serve as run

    configure(configuration.settings.log_level, configuration.settings.log_format)
    asyncio.run(run(configuration))


@app.command()
def config(
    config: ConfigFile = None,
    socket: Socket = None,
    state_dir: StateDir = None,
    listen: Listen = None,
    metrics_port: MetricsPort = None,
    sets: Setting = None,
    output: Annotated[Output, typer.Option("-o", "--output", help="Output format.")] = Output.table,
) -> None:
    """Print the effective configuration with each value's origin, and check it."""
    loaded = _load(config, sets, socket=socket, state_dir=state_dir, listen=listen, metrics_port=metrics_port)
    values = {name: str(getattr(loaded.settings, name)) for name in loaded.origins}
    if output is Output.json:
        rows = {name: {"value": values[name], "origin": loaded.origins[name]} for name in values}
        typer.echo(json.dumps(rows, indent=2))
        return
    for name, value in values.items():
        typer.echo(f"{name} = {value}  # {loaded.origins[name]}")


@app.command("warm-up")
def warm_up(config: ConfigFile = None, sets: Setting = None) -> None:
    """Compile all planners once, so that the first plan does not wait for it; prints seconds by planner."""
    cache.use(_load(config, sets).settings.cache_dir / "kernels")
    from stepd.daemon.warm_up import warm_up as run  # after the environment: numba reads it when it is imported

    for name, seconds, skipped in run(cores.usable()):
        typer.echo(f"{name}: {skipped or f'{seconds:.1f} s'}")
    cache.note_warm()


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(installed.version())


def main() -> None:
    """Console entry: expected errors are one line on stderr and exit code 1 (2: bad configuration)."""
    try:
        app()
    except StepdError as error:
        print(f"stepd: error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigError) else 1)


if __name__ == "__main__":
    main()
