"""A real training process on two local devices, replicated through a real daemon, seen by stepctl, and undone.

That planners choose so is tested in the core: a planner process only gets what everything else on the machine leaves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from served import ServedDaemon

from stepd.v1 import operator_pb2

SECONDS = 150.0

# Trains until a file appears; when another does, from the start again. Written for one device; the batch is worth two.
TRAINING = """
import json, os, sys
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
random = np.random.RandomState(1)
x, y = v1.placeholder(tf.float64, [None, 64]), v1.placeholder(tf.int64, [None])
h = x
for k in range(3):
    start = random.randn(h.shape[-1], 256) / 16
    h = tf.nn.relu(tf.matmul(h, v1.get_variable(f"w{k}", initializer=start, use_resource=True)), name=f"h{k}")
logits = tf.matmul(h, v1.get_variable("out", initializer=random.randn(256, 10) / 16, use_resource=True))
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
train = v1.train.MomentumOptimizer(0.01, 0.9).minimize(loss)
fed = {x: random.randn(2048, 64), y: random.randint(0, 10, 2048)}
stop, out = sys.argv[1], sys.argv[2]
with v1.Session() as session:
    start = v1.global_variables_initializer()

    def first_losses():
        session.run(start)
        return [session.run([loss, train], fed)[0] for _ in range(5)]

    before = first_losses()
    while not os.path.exists(stop):
        session.run([loss, train], fed)
        if os.path.exists(stop + ".again") and not os.path.exists(out):
            json.dump([before, first_losses()], open(out + ".made", "w"))
            os.replace(out + ".made", out)
"""


class Daemon(ServedDaemon):
    """Seen as the test here sees it: a job and its ops in parts."""

    def job(self) -> str:
        """The id of the job, once its session has run steps."""
        listed = self.ask("ListJobs", operator_pb2.ListJobsRequest())
        return next((job.id for job in listed.job if any(s.steps for s in job.session)), "") if listed else ""

    def splits(self, job: str) -> int:
        """How many ops are in parts, as of the last switch; -1 before there was one."""
        got = self.ask("GetJob", operator_pb2.GetJobRequest(job=job))
        last = [detail.last_switch for detail in got.detail if detail.HasField("last_switch")] if got else []
        return last[-1].splits_in_force if last and last[-1].ok else -1

    def eventually(self, what: str, check: Callable[[], Any]) -> Any:
        """Poll another process, which cannot notify us."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            value = check()
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f"{what}: not within {SECONDS} s; {(self._folder / 'daemon.log').read_text()[-3000:]}")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two local devices need two cores")
def test_a_replicated_program_is_seen_by_an_operator_and_goes_back(daemon: Daemon, tmp_path: Path) -> None:
    script, stop, out = tmp_path / "train.py", tmp_path / "stop", tmp_path / "losses.json"
    script.write_text(TRAINING)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("STEPD_")}
    environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "STEPD_SOCKET": str(daemon.socket)}
    command = [sys.executable, "-m", "stepd.hook.launcher", "--no-daemon", "--local-devices", "2", sys.executable, str(script)]
    training = subprocess.Popen([*command, str(stop), str(out)], env=environ)
    try:
        job = daemon.eventually("the job runs", daemon.job)
        everything = json.dumps({"placement": {}, "replicate": True}).encode()
        request = operator_pb2.ActivateRequest(job=job, strategy_json=everything, pin=True)
        daemon.eventually("it is accepted", lambda: daemon.ask("ActivateStrategy", request))
        count = daemon.eventually("ops run in parts", lambda: max(0, daemon.splits(job)))
        assert count > 4 + 7, "the products, forward and backward, and what is between them"
        show = [sys.executable, "-m", "stepd.cli.main", "--socket", str(daemon.socket), "show", job]
        shown = subprocess.run(show, capture_output=True, text=True, check=True, env={**environ, "COLUMNS": "200"}).stdout
        assert f"splits: {count}" in shown
        daemon.eventually("losses under splits", lambda: stop.with_suffix(".again").touch() or out.exists())
        daemon.ask("RollBack", operator_pb2.RollbackRequest(job=job))
        daemon.eventually("no op runs in parts", lambda: daemon.splits(job) == 0)
        stop.touch()
        assert training.wait(SECONDS) == 0
    finally:
        training.kill()
        training.wait()
    before, under_splits = json.loads(out.read_text())
    assert under_splits == pytest.approx(before, rel=1e-10)
