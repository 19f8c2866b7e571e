"""`stepd serve` as a process of its own, for tests that ask it what an operator would."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from stepd.v1 import operator_pb2_grpc

SECONDS = 150.0


def eventually(what: str, check: Callable[[], Any], seen: Callable[[], str] = str) -> Any:
    """What `check` returns once that is true: polls another process, which cannot notify us. `seen`: shown when it never is."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {SECONDS} s; {seen()}")


class ServedDaemon:
    """`stepd serve` on a private socket; the state folder survives restarts."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "stepd.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *settings: str) -> None:
        """Serve with `settings` ("name=value"); without any, nothing is planned."""
        command = [sys.executable, "-m", "stepd.daemon.main", "serve", "--socket", str(self.socket)]
        command += ["--state-dir", str(self._folder / "state")]
        for setting in settings or ("planner=false",):
            command += ["--set", setting]
        with (self._folder / "daemon.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def eventually(self, what: str, check: Callable[[], Any]) -> Any:
        """As `eventually`, with the end of the daemon's log."""
        return eventually(what, check, lambda: (self._folder / "daemon.log").read_text()[-3000:])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, method: str, request: Any) -> Any:
        """The answer of an operator call; None while the daemon cannot be reached or says "not yet"."""
        with grpc.insecure_channel(f"unix:{self.socket}", [("grpc.default_authority", "stepd")]) as channel:
            try:
                return getattr(operator_pb2_grpc.OperatorStub(channel), method)(request, timeout=20, wait_for_ready=False)
            except grpc.RpcError as error:
                if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
                    return None
                raise
