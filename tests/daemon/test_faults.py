"""Faults of the machine: full disks, broken files, paths that cannot be used, clocks that jump. Each is told, nothing is lost."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paper_machine import PLANNING

from stepd.core.activation_values import Phase, State
from stepd.daemon.clock import SteadyClock
from stepd.daemon.convert.session_state import state_from_json, to_json
from stepd.daemon.jobs import Session
from stepd.daemon.memory import Returns
from stepd.v1 import runtime_pb2


def serve(*arguments: object) -> tuple[int, str]:
    """Exit code and message of a daemon that cannot start."""
    command = [sys.executable, "-m", "stepd.daemon.main", "serve", *map(str, arguments)]
    environ = {key: value for key, value in os.environ.items() if not key.startswith("STEPD_")}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environ)
    assert "Traceback" not in ended.stderr
    return ended.returncode, ended.stderr


def test_a_file_of_somebody_else_at_the_sockets_path_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "stepd.sock"
    file.write_text("dear diary")
    code, said = serve("--socket", file, "--state-dir", tmp_path / "state")
    assert (code, file.read_text()) == (2, "dear diary")
    assert f"{file} is there and is no socket: move it away" in said


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--socket", "{tmp}"), 2, "{tmp} is there and is no socket"),
        (("--socket", "/proc/none/stepd.sock"), 2, "socket: cannot use /proc/none/stepd.sock"),
        (("--socket", "{tmp}/s", "--state-dir", "/proc/none"), 1, "cannot open the state in /proc/none/stepd.sqlite3"),
        (("--socket", "{tmp}/s", "--listen", "127.0.0.1:99999"), 2, "127.0.0.1:99999 has no port from 0 to 65535"),
    ],
)
def test_paths_and_ports_that_cannot_be_used(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    defaults = () if "--state-dir" in arguments else ("--state-dir", tmp_path / "state")
    ended, said = serve(*[argument.format(tmp=tmp_path) for argument in arguments], *defaults)
    assert ended == code
    assert message.format(tmp=tmp_path) in said


def test_a_damaged_database_is_named_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "stepd.sqlite3"
    file.write_bytes(b"not a database, but somebody's last copy" * 100)
    before = file.read_bytes()
    code, said = serve("--socket", tmp_path / "stepd.sock", "--state-dir", tmp_path)
    assert (code, file.read_bytes()) == (1, before)
    assert str(file) in said
    assert "move the file away" in said


def test_a_full_disk_stops_no_job(start_daemon, attach, towers, stepctl, wait_until, tmp_path) -> None:
    """Nothing can be written, not even the log: jobs attach and run; what needs the disk says so; with room again all goes on."""
    daemon = start_daemon(*PLANNING)
    no_limit = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (1, no_limit[1]))
    hook = attach(daemon, towers)
    hook.open()
    wait_until("the graph is known", lambda: daemon.jobs() and daemon.session(hook.job_id).ops)
    strategy = tmp_path / "strategy.json"
    strategy.write_text(json.dumps({"placement": {"left/op0": "/job:worker/replica:0/task:1/device:CPU:0"}}))
    answer = stepctl(daemon.socket, "activate", hook.job_id, str(strategy))
    assert answer.code == 1
    assert f"cannot write the state to {daemon.state / 'stepd.sqlite3'}" in answer.err
    assert "make room there" in answer.err
    assert hook.activations == []
    exported = stepctl(daemon.socket, "export-problem", hook.job_id)
    assert exported.code == 1
    assert "is not in the store; the hook was asked for it: try again" in exported.err
    hook.send(step_times=runtime_pb2.StepTimes(session_id="s1", kind="train", seconds=[float("nan"), float("inf"), -1.0] * 5))
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, no_limit)
    hook.run_steps()
    hook.profile(3)
    wait_until("committed", lambda: daemon.session(hook.job_id).state == "COMMITTED")
    assert daemon.session(hook.job_id).seconds_before == pytest.approx(towers.step({})[0])
    assert daemon.stop() == 0


def test_the_clock_is_steady_when_the_machines_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SteadyClock()
    before = clock()
    assert before == pytest.approx(time.time(), abs=60.0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert clock() >= before


def test_a_rest_lasts_no_longer_because_the_clock_was_set_back_while_the_daemon_was_down() -> None:
    kept = Session("s1")
    kept.state = State(phase=Phase.ROLLED_BACK, entered=1e6, not_before=1e6 + 15.0, paused_until=1e6 + 60.0)
    state = state_from_json(to_json(kept, kept.state), now=4e5)
    assert (state.entered, state.not_before, state.paused_until) == (4e5, 4e5 + 15.0, 4e5 + 60.0)
    later = state_from_json(to_json(kept, kept.state), now=2e6)
    assert (later.entered, later.not_before) == (1e6, 1e6 + 15.0)


def test_memory_is_given_back_once_after_each_use() -> None:
    returns = Returns()
    assert not returns.give_back()
    returns.used()
    assert (returns.give_back(), returns.give_back()) == (True, False)
