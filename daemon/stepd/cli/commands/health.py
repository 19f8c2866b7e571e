"""`stepctl health`: is the daemon serving?"""

from __future__ import annotations

import typer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from stepd.cli.client import TIMEOUT_SECONDS, channel_to
from stepd.cli.exits import EXIT_FAILED
from stepd.cli.options import OutputOption, target_of
from stepd.cli.render import Output, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(health)


def health(context: typer.Context, output: OutputOption = Output.table) -> None:
    """Exit 0 when the daemon serves, 1 when it drains, 3 when it is not there."""
    with channel_to(target_of(context)) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_SECONDS)
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    if output is Output.json:
        print_json({"status": name})
    else:
        print(name)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise typer.Exit(EXIT_FAILED)
