"""A real daemon process on a private socket, and fixtures that attach jobs of the paper machine to it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from stepd.cli import main as stepctl_main
from stepd.core.cost.models import CostModels
from stepd.daemon.config import default_cache_dir
from stepd.daemon.planner import PlannerPool
from stepd.traces.profile import parse_profile
from stepd.v1 import operator_pb2, operator_pb2_grpc

sys.path.insert(0, str(Path(__file__).parent))

from paper_machine import DEVICES, PLANNING, WAIT_SECONDS, FakeHook, Towers, wait_for


class DaemonProcess:
    """`stepd serve` in a process of its own."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.socket = folder / "stepd.sock"
        self.state = folder / "state"
        self._settings = settings
        self._log = folder / "daemon.log"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "stepd.daemon.main", "serve", "--socket", str(self.socket)]
        command += ["--state-dir", str(self.state)]
        for setting in self._settings:
            command += ["--set", setting]
        environ = {key: value for key, value in os.environ.items() if not key.startswith("STEPD_")}
        if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # tests under nohup: the daemon would ignore it as well
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with self._log.open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environ)

        def serving() -> bool:
            assert process.poll() is None, self.log()
            return self._answers()

        wait_for("daemon serves", serving)
        return process

    def _answers(self) -> bool:
        try:
            self.operator(lambda stub: stub.GetVersion(operator_pb2.GetVersionRequest(), timeout=5))
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.UNAUTHENTICATED
        return True

    def operator(self, call: Callable[[operator_pb2_grpc.OperatorStub], object]) -> object:
        with grpc.insecure_channel(f"unix:{self.socket}") as channel:
            return call(operator_pb2_grpc.OperatorStub(channel))

    def jobs(self, ended: bool = False) -> list[operator_pb2.Job]:
        request = operator_pb2.ListJobsRequest(ended=ended)
        answer = self.operator(lambda stub: stub.ListJobs(request, timeout=10))
        assert isinstance(answer, operator_pb2.ListJobsResponse)
        return list(answer.job)

    def session(self, job_id: str) -> operator_pb2.Session:
        """The job's session; an empty one as long as its hook has opened none."""
        return next((*job.session, operator_pb2.Session())[0] for job in self.jobs(ended=True) if job.id == job_id)

    def log(self) -> str:
        return self._log.read_text()

    def restart(self) -> None:
        self.process = self._start()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(WAIT_SECONDS)


QUICK = (*PLANNING, "improve_seconds=3600")


@pytest.fixture(scope="session")
def kernels() -> None:
    """The kernels that planning compiles, in the daemons' cache: after a change of the core they take longer than a test waits."""
    towers, models = Towers(), CostModels()
    seconds, trace = towers.step({})
    models.observe(parse_profile(trace, frozenset(towers.names), {*DEVICES}, batch=[32], seconds=seconds))
    request = {
        "name": "kernels",
        "graph_def": towers.graph_def(),
        "outputs": ["loss"],
        "devices": [(name, "CPU", 1 << 40, True) for name in DEVICES],
        "models": models.to_state(),
        "measured": [{"id": "", "placement": {}, "priority": {}, "seconds": seconds, "lost": False, "in_force": True}],
        "seconds": 1.0,
        "seed": 0,
        "algorithm": "heft",
        "ordered": False,
        "whole_order": False,
        "export": False,
        "today": {},
        "pinned": {},
        "device_kinds": {},
        "keeps_types": False,
        "together": [],
        "lifted": {},
        "shared": {},
        "splits": [],
    }
    planned = asyncio.run(PlannerPool(default_cache_dir(), 0, yields=False).plan(request))
    assert planned.candidates[-1]["algorithm"] == "heft"


@pytest.fixture
def daemon(kernels: None, tmp_path: Path) -> Iterator[DaemonProcess]:
    """A daemon that plans quickly with a cheap algorithm."""
    process = DaemonProcess(tmp_path, *QUICK)
    yield process
    process.stop()


@pytest.fixture(scope="module")
def shared_daemon(kernels: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One daemon for a module's tests that only ask it things, or must not harm it."""
    process = DaemonProcess(tmp_path_factory.mktemp("shared"), *QUICK)
    yield process
    assert process.stop() == 0, process.log()


@pytest.fixture(scope="module")
def shared_job(shared_daemon: DaemonProcess) -> Iterator[FakeHook]:
    """A job of the shared daemon, with its graph known."""
    hook = FakeHook(shared_daemon.socket, Towers())
    hook.open()
    wait_for("graph is known", lambda: shared_daemon.jobs()[0].session and shared_daemon.session(hook.job_id).ops)
    yield hook
    hook.close()


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


@pytest.fixture
def stepctl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Run stepctl's own entry point in this process: arguments, the socket first."""

    def call(socket: Path, *arguments: str) -> Answer:
        monkeypatch.setattr(sys, "argv", ["stepctl", "--socket", str(socket), *arguments])
        capsys.readouterr()
        try:
            stepctl_main.main()
        except SystemExit as end:
            said = capsys.readouterr()
            return Answer(int(end.code or 0), said.out, said.err)
        raise AssertionError("typer ends with SystemExit")

    return call


@pytest.fixture
def start_daemon(kernels: None, tmp_path: Path) -> Iterator[Callable[..., DaemonProcess]]:
    """Start daemons with settings of one's own; all are stopped at the end."""
    started: list[DaemonProcess] = []

    def start(*settings: str) -> DaemonProcess:
        started.append(DaemonProcess(tmp_path, *settings))
        return started[-1]

    yield start
    for process in started:
        process.stop()


@pytest.fixture
def attach() -> Iterator[Callable[..., FakeHook]]:
    """Attach fake hooks; all are closed at the end."""
    hooks: list[FakeHook] = []

    def make(daemon: DaemonProcess, towers: Towers | None = None, **options: str) -> FakeHook:
        hooks.append(FakeHook(daemon.socket, towers or Towers(), **options))
        return hooks[-1]

    yield make
    for hook in hooks:
        hook.close()


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A TCP port of loopback that nobody uses now."""

    def find() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return int(probe.getsockname()[1])

    return find


@pytest.fixture
def towers() -> Towers:
    return Towers()


@pytest.fixture(scope="session")
def wait_until() -> Callable[..., object]:
    return wait_for
