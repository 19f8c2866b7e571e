"""`stepctl doctor`: checks configuration and connection, and says what to do about each finding."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc
import typer

from stepd.cli.client import TIMEOUT_SECONDS, Target, not_for_us, operator
from stepd.cli.exits import EXIT_FAILED, CommandError
from stepd.cli.options import OutputOption, target_of
from stepd.cli.render import Output, console, print_json, table
from stepd.v1 import operator_pb2

PROTOCOL = 1


@dataclass(frozen=True)
class Finding:
    """One check. `ok` None: only worth knowing."""

    check: str
    ok: bool | None
    says: str


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(context: typer.Context, output: OutputOption = Output.table) -> None:
    """Check configuration and connection; exit 1 when something needs attention."""
    target = target_of(context)
    checks: tuple[Callable[[Target], Iterator[Finding]], ...] = (_versions, _socket, _daemon)
    findings = [finding for check in checks for finding in check(target)]
    if output is Output.json:
        print_json([vars(finding) for finding in findings])
    else:
        marks = {True: "ok", False: "PROBLEM", None: "-"}
        console().print(table(("CHECK", "", "FINDING"), [(f.check, marks[f.ok], f.says) for f in findings]))
    if any(finding.ok is False for finding in findings):
        raise typer.Exit(EXIT_FAILED)


def _versions(_: Target) -> Iterator[Finding]:
    yield Finding("python", None, f"{platform.python_version()} on {platform.platform(terse=True)}, grpc {grpc.__version__}")
    if "http_proxy" in os.environ or "HTTP_PROXY" in os.environ:
        yield Finding("proxy", None, "an HTTP proxy is set; stepctl does not use it")


def _socket(target: Target) -> Iterator[Finding]:
    if target.host:
        secure = "TLS" if target.ca else "no TLS: only safe on loopback or with a token on a trusted network"
        yield Finding("address", None, f"{target.host}, {secure}")
        return
    origin = "STEPD_SOCKET" if os.environ.get("STEPD_SOCKET") else "default or --socket"
    if denied := not_for_us(target.socket):
        yield Finding("socket", False, denied)
    elif not target.socket.exists():
        yield Finding("socket", False, f"{target.socket} ({origin}) does not exist: start the daemon with `stepd serve`")
    elif not target.socket.is_socket():
        yield Finding("socket", False, f"{target.socket} ({origin}) is not a socket: remove it or set STEPD_SOCKET")
    else:
        yield Finding("socket", True, f"{target.socket} ({origin})")


def _daemon(target: Target) -> Iterator[Finding]:
    try:
        with operator(target) as stub:
            answer = stub.GetVersion(operator_pb2.GetVersionRequest(), timeout=TIMEOUT_SECONDS)
            jobs = stub.ListJobs(operator_pb2.ListJobsRequest(), timeout=TIMEOUT_SECONDS).job
    except CommandError as error:
        yield Finding("daemon", False, str(error))
        return
    same = answer.protocol == PROTOCOL
    yield Finding("daemon", same, f"version {answer.version}, protocol {answer.protocol}" + ("" if same else f", not {PROTOCOL}"))
    for name, value in sorted(answer.settings.items()):
        if not value.endswith("(default)"):
            yield Finding("setting", None, f"{name} = {value}")
    yield Finding("jobs", None, f"{len(jobs)} attached")
    for job in jobs:
        if not job.compatibility.active:
            yield Finding("job", False, f"{job.id[:8]} {job.name}: the hook is inactive: {job.compatibility.reason}")
