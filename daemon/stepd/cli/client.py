"""The connection to the daemon, and what its refusals mean for the exit code."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from stepd.cli.exits import EXIT_FAILED, EXIT_NO_SUCH_JOB, EXIT_UNREACHABLE, EXIT_USAGE, CommandError
from stepd.v1 import operator_pb2_grpc

TIMEOUT_SECONDS = 10.0
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
)

CODES = {
    grpc.StatusCode.UNAVAILABLE: EXIT_UNREACHABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: EXIT_UNREACHABLE,
    grpc.StatusCode.UNAUTHENTICATED: EXIT_UNREACHABLE,
    grpc.StatusCode.NOT_FOUND: EXIT_NO_SUCH_JOB,
    grpc.StatusCode.INVALID_ARGUMENT: EXIT_USAGE,
}


@dataclass(frozen=True)
class Target:
    """Where the daemon is: a Unix socket, or `host` (HOST:PORT) with a token and, when given, a certificate
    authority and a client certificate.
    """

    socket: Path = field(default_factory=lambda: default_socket())
    host: str = ""
    token: str = ""
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @property
    def address(self) -> str:
        """As gRPC writes it."""
        return self.host or f"unix:{self.socket}"


def default_socket() -> Path:
    """$STEPD_SOCKET, else the first that exists of the usual places."""
    given = os.environ.get("STEPD_SOCKET")
    if given:
        return Path(given)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    usual = [
        Path("/run/stepd/stepd.sock"),
        Path(tempfile.gettempdir()) / f"stepd-{os.getuid()}" / "stepd.sock",
    ]
    if runtime:
        usual.insert(0, Path(runtime) / "stepd" / "stepd.sock")
    return next((path for path in usual if os.path.exists(path)), usual[0])  # noqa: PTH110 (False, not an error, where it may not look)


@contextmanager
def channel_to(target: Target) -> Iterator[grpc.Channel]:
    """An open channel; gRPC's errors become CommandErrors."""
    channel = grpc.insecure_channel(target.address, OPTIONS) if target.ca is None else _secure(target)
    if target.token:
        channel = grpc.intercept_channel(channel, _Token(target.token))
    try:
        yield channel
    except grpc.RpcError as error:
        raise refusal(error, target) from error
    finally:
        channel.close()


@contextmanager
def operator(target: Target) -> Iterator[operator_pb2_grpc.OperatorStub]:
    """The operator service."""
    with channel_to(target) as channel:
        yield operator_pb2_grpc.OperatorStub(channel)  # type: ignore[no-untyped-call]


def refusal(error: grpc.RpcError, target: Target) -> CommandError:
    """The error in words, with its exit code."""
    code = error.code()
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
        where = target.host or str(target.socket)
        if not target.host and (denied := not_for_us(target.socket)):
            return CommandError(denied, EXIT_UNREACHABLE)
        why = f" ({error.details()})" if target.host else ""  # a name that is unknown, a port that is closed, TLS that fails
        return CommandError(
            f"no stepd daemon answers at {where}: start one with `stepd serve`, or say where it is with --socket or --host{why}",
            EXIT_UNREACHABLE,
        )
    return CommandError(error.details() or code.name, CODES.get(code, EXIT_FAILED))


def not_for_us(socket: Path) -> str:
    """Why this user may not use the socket, as far as its path's permissions tell; "" when they let it."""
    try:
        socket.stat()
    except PermissionError:
        return f"{socket.parent} may not be entered by this user: join the daemon's group"
    except OSError:
        return ""
    return "" if os.access(socket, os.R_OK | os.W_OK) else f"{socket} may not be used by this user: join the daemon's group"


def _secure(target: Target) -> grpc.Channel:
    def read(file: Path | None) -> bytes | None:
        try:
            return file.read_bytes() if file else None
        except OSError as error:
            raise CommandError(f"cannot read {file}: {error.strerror}", EXIT_USAGE) from error

    credentials = grpc.ssl_channel_credentials(read(target.ca), read(target.key), read(target.cert))
    return grpc.secure_channel(target.address, credentials, OPTIONS)


class _Details(NamedTuple):
    method: str
    timeout: float | None
    metadata: list[tuple[str, str]]
    credentials: Any
    wait_for_ready: Any
    compression: Any


class _Token(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc, type-arg, unused-ignore]
    """Adds the bearer token to every call."""

    def __init__(self, token: str) -> None:
        self._metadata = ("authorization", f"Bearer {token}")

    def _with_token(self, given: Any) -> _Details:
        metadata = [*(given.metadata or ()), self._metadata]
        return _Details(given.method, given.timeout, metadata, given.credentials, given.wait_for_ready, given.compression)

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's hook."""
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """gRPC's hook."""
        return continuation(self._with_token(client_call_details), request)


def chatter(text: str) -> None:
    """A word to the person, not to the pipe."""
    print(text, file=sys.stderr)
