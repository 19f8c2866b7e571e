"""A real training process under the hook and a real daemon that comes late, is killed and comes back: the program cannot tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import SECONDS, ServedDaemon, eventually

from stepd.v1 import operator_pb2, runtime_pb2

# Trains until a file appears, at least 40 steps. A chain of small ops: on two devices in turn each of them waits for a transfer.
TRAINING = """
import json, os, sys, time
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
v1.set_random_seed(7)
x = v1.placeholder(tf.float32, [16, 16], name="x")
h = x
for k in range(60):
    h = tf.tanh(tf.matmul(h, v1.get_variable(f"w{k}", [16, 16], initializer=v1.orthogonal_initializer(seed=k))), name=f"h{k}")
loss = tf.reduce_mean(tf.nn.dropout(h, rate=0.1, seed=3) ** 2, name="loss")
train = v1.train.GradientDescentOptimizer(0.01).minimize(loss)
data = np.random.RandomState(0).rand(16, 16).astype("float32")
losses = []
stop, steps, out = sys.argv[1], int(sys.argv[2]), sys.argv[3]
with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
    session.run(v1.global_variables_initializer())
    while len(losses) < steps or (stop and not os.path.exists(stop)):
        if len(losses) > steps:
            time.sleep(0.01)  # the plain program repeats every step
        losses.append(session.run([loss, train], {x: data})[0].tobytes().hex())
json.dump(losses, open(out, "w"))
"""


class Daemon(ServedDaemon):
    """Seen as the tests here see it: one job, one session."""

    def session(self) -> Any:
        """The first session of the only attached job, once it has run steps."""
        listed = self.ask("ListJobs", operator_pb2.ListJobsRequest())
        jobs = [job for job in listed.job if job.attached] if listed else []
        return next((session for job in jobs for session in job.session if session.steps), None)

    def job(self) -> Any:
        listed = self.ask("ListJobs", operator_pb2.ListJobsRequest(ended=True))
        return listed.job[0] if listed and listed.job else None


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    yield made
    made.kill()


class Training:
    """The program above; `losses` ends it and returns the bits of every step's loss."""

    def __init__(self, folder: Path, name: str, steps: int, hooked: Daemon | None) -> None:
        script = folder / "train.py"
        script.write_text(TRAINING)
        self._out = folder / f"{name}.json"
        self._stop = folder / f"{name}.stop"
        environ = {key: value for key, value in os.environ.items() if not key.startswith("STEPD_")} | {"TF_CPP_MIN_LOG_LEVEL": "3"}
        if hooked is not None:
            environ |= {"STEPD_SOCKET": str(hooked.socket), "STEPD_ENABLE": "1", "STEPD_LOG": str(folder / "hook.log")}
        stop = str(self._stop) if hooked is not None else ""
        self.process = subprocess.Popen([sys.executable, str(script), stop, str(steps), str(self._out)], env=environ)

    def losses(self) -> list[str]:
        self._stop.touch()
        assert self.process.wait(SECONDS) == 0
        losses: list[str] = json.loads(self._out.read_text())
        return losses


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Starts training processes; none outlives the test."""
    started: list[Training] = []

    def start(name: str, steps: int, hooked: Daemon | None = None) -> Training:
        started.append(Training(tmp_path, name, steps, hooked))
        return started[-1]

    yield start
    for training in started:
        training.process.kill()
        training.process.wait()


def test_a_daemon_that_is_late_killed_and_restarted(daemon: Daemon, train: Callable[..., Training]) -> None:
    training = train("hooked", 40, daemon)
    daemon.start()
    eventually("the job is attached", daemon.session)
    job = daemon.job()
    assert job.compatibility.active
    assert job.name == "train.py"
    daemon.kill()
    daemon.start()
    session = eventually("the job is attached again", daemon.session)
    assert daemon.job().id == job.id
    assert session.steps > 0
    losses = training.losses()
    eventually("the end is known", lambda: not daemon.job().attached)
    assert losses == train("plain", len(losses)).losses()


def test_a_bad_strategy_is_undone_while_the_daemon_is_dead(daemon: Daemon, train: Callable[..., Training], tmp_path: Path) -> None:
    daemon.start()
    training = train("hooked", 40, daemon)
    session = eventually("step times are known", lambda: (found := daemon.session()) and found.seconds_before and found)
    devices = [device.name for device in session.device]
    assert len(devices) == 2
    strategy = {"devices": devices, "placement": {f"h{k}": devices[k % 2] for k in range(60)}}
    request = operator_pb2.ActivateRequest(job=daemon.job().id, strategy_json=json.dumps(strategy).encode())
    activated = eventually("the strategy is accepted", lambda: daemon.ask("ActivateStrategy", request))
    hook_log = tmp_path / "hook.log"
    eventually("the hook has heard of it", lambda: f"switching to {activated.strategy_id}" in hook_log.read_text())
    daemon.kill()
    eventually("the hook decided alone", lambda: f"{activated.strategy_id}: " in hook_log.read_text())
    daemon.start()
    history = eventually(
        "the verdict is told",
        lambda: (found := daemon.ask("GetHistory", operator_pb2.GetHistoryRequest(job=request.job))) and found.trial and found,
    )
    trial = next(trial for trial in history.trial if trial.strategy_id == activated.strategy_id)
    assert trial.outcome == runtime_pb2.Verdict.ROLLED_BACK
    assert trial.measured_seconds > 0 < trial.before_seconds
    losses = training.losses()
    assert losses == train("plain", len(losses)).losses()
