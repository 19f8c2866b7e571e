"""What operators see of a running daemon, through stepctl's own entry point."""

from __future__ import annotations

import json
import stat

import pytest


@pytest.fixture(scope="module")
def committed(shared_daemon, shared_job, wait_until):
    """The shared job after a strategy was kept."""
    shared_job.run_steps()
    shared_job.profile(3)
    wait_until("committed", lambda: shared_daemon.session(shared_job.job_id).state == "COMMITTED")
    return shared_job


def read(answer) -> object:
    assert answer.code == 0, answer.err
    return json.loads(answer.out)


def test_status(shared_daemon, committed, stepctl) -> None:
    (job,) = read(stepctl(shared_daemon.socket, "status", "-o", "json"))
    assert (job["id"], job["attached"]) == (committed.job_id, True)
    (session,) = job["session"]
    assert session["state"] == "COMMITTED"
    assert session["seconds_now"] < 0.6 * session["seconds_before"]
    table = stepctl(shared_daemon.socket, "status")
    assert all(word in table.out for word in (committed.job_id[:8], "COMMITTED", "KEPT", committed.strategy_id[:8]))


def test_show(shared_daemon, committed, stepctl) -> None:
    answer = read(stepctl(shared_daemon.socket, "show", committed.job_id[:6], "-o", "json"))
    (detail,) = answer["detail"]
    assert detail["strategy"]["id"] == committed.strategy_id
    assert sum(device["ops"] for device in detail["device"]) == len(committed.towers.names)
    assert all(0.5 < device["busy_fraction"] <= 1 for device in detail["device"])
    table = stepctl(shared_daemon.socket, "show", "towers.py")
    assert "task:1/device:CPU:0" in table.out
    assert "ops are where asked, 0 not" in table.out


def test_history(shared_daemon, committed, stepctl) -> None:
    trials = read(stepctl(shared_daemon.socket, "history", committed.job_id, "-o", "json"))
    assert [(t["strategy_id"], t["outcome"], t["best"]) for t in trials] == [(committed.strategy_id, "KEPT", True)]
    assert trials[0]["predicted_seconds"] == pytest.approx(trials[0]["measured_seconds"], rel=0.1)
    assert "measured on paper" in stepctl(shared_daemon.socket, "history", committed.job_id).out


def test_exported_problem_has_learned_costs(shared_daemon, committed, stepctl, tmp_path) -> None:
    file = tmp_path / "problem.json"
    answer = stepctl(shared_daemon.socket, "export-problem", committed.job_id, "-o", str(file))
    assert answer.code == 0, answer.err
    problem = json.loads(file.read_text())
    seconds = dict(zip(problem["ops"]["name"], problem["ops"]["seconds"], strict=True))
    assert seconds["left/op0"] == pytest.approx([committed.towers.op_seconds] * 2, rel=0.01)


def test_pause_and_resume(shared_daemon, committed, stepctl, wait_until) -> None:
    assert stepctl(shared_daemon.socket, "pause", committed.job_id, "--for", "3600").code == 0
    assert "COMMITTED (paused)" in stepctl(shared_daemon.socket, "status").out
    assert stepctl(shared_daemon.socket, "resume", committed.job_id).code == 0
    assert "(paused)" not in stepctl(shared_daemon.socket, "status").out

    def told() -> list[str]:
        kinds = [message.WhichOneof("message") for message in committed.received]
        return [kind for kind in kinds if kind in ("pause", "resume")]  # a new round may have begun

    wait_until("the hook is told both", lambda: told()[-2:] == ["pause", "resume"])


def test_health_version_doctor(shared_daemon, stepctl) -> None:
    assert read(stepctl(shared_daemon.socket, "health", "-o", "json")) == {"status": "SERVING"}
    said = read(stepctl(shared_daemon.socket, "version", "-o", "json"))
    assert said["daemon"] == said["stepctl"]
    findings = read(stepctl(shared_daemon.socket, "doctor", "-o", "json"))
    assert {"check": "setting", "ok": None, "says": "profile_steps = 2 (command line)"} in findings
    assert all(finding["ok"] is not False for finding in findings)


def test_socket_is_for_owner_and_group(shared_daemon) -> None:
    assert stat.S_IMODE(shared_daemon.socket.stat().st_mode) == 0o660
