"""`stepd serve` as a process of its own, for tests that ask it what an operator would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc

from stepd.v1 import operator_pb2_grpc


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
