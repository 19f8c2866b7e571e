"""The order of ops in parts, live: on two local devices, by an operator's word, and judged by the guard against no order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import SECONDS
from splits_seen import Daemon

from stepd.hook.guard import SIGNIFICANCE
from stepd.v1 import operator_pb2, runtime_pb2

# A long chain waits for one product among others that nobody waits for.
STEPS = """
import json, os, sys
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
N = 448
x = v1.placeholder(tf.float32, [N, N], name="x")

def product(value, name):
    start = (np.random.RandomState(len(name)).randn(N, N) / N ** 0.5).astype(np.float32)
    return tf.matmul(value, v1.get_variable("w_" + name, initializer=start, use_resource=True), name=name)

ends = []
for k in range(6):
    ends.append(product(product(x, f"first{k}"), f"second{k}"))
    if k == 2:
        chain = product(x, "urgent")
for k in range(8):
    chain = product(chain, f"chain{k}")
ends = [tf.reduce_mean(end) for end in [*ends, chain]]
fed = {x: np.random.RandomState(0).randn(N, N).astype(np.float32)}
stop, out = sys.argv[1:]
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    first = session.run(ends, fed)
    while not os.path.exists(stop):
        last = session.run(ends, fed)
    json.dump([[float(v) for v in values] for values in (first, last)], open(out, "w"))
"""
DEVICES = [f"/job:localhost/replica:0/task:{k}/device:CPU:0" for k in (0, 1)]
OTHERS = [f"{what}{k}" for k in range(6) for what in ("first", "second")]
TRIALS = 3  # of the order: other work on the machine may begin in the middle of one, which a rank test takes for the order's doing
CHAIN = [f"chain{k}" for k in range(8)]


def strategy(ordered: bool, first_priority: int = 0) -> bytes:
    """The others in two parts on device 0, the chain on device 1; the product that it waits for in a part on each.

    In order: that product before the others. `first_priority` changes nothing but the strategy's id.
    """
    first, second = DEVICES
    placement = {**dict.fromkeys(OTHERS, first), **dict.fromkeys(["urgent", *CHAIN], second)}
    splits = [{"op": op, "axis": "0", "parts": 2, "devices": [first, first]} for op in OTHERS]
    splits.append({"op": "urgent", "axis": "0", "parts": 2, "devices": [first, second]})
    document: dict[str, Any] = {"placement": placement, "splits": splits}
    if ordered:
        document["priority"] = {op: k for k, op in enumerate(["urgent", *CHAIN, *OTHERS], first_priority)}
    return json.dumps(document).encode()


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    made = Daemon(tmp_path)
    made.start()
    yield made
    made.kill()


@pytest.fixture
def program(daemon: Daemon, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The steps, on two local devices; they end when `tmp_path / "stop"` appears, or with the test."""
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("STEPD_")}
    environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "STEPD_SOCKET": str(daemon.socket), "STEPD_SPLITS": "1", "STEPD_ORDER": "control"}
    command = [sys.executable, "-m", "stepd.hook.launcher", "--no-daemon", "--local-devices", "2", sys.executable, str(script)]
    process = subprocess.Popen([*command, str(tmp_path / "stop"), str(tmp_path / "out")], env=environ)
    yield process
    process.kill()
    process.wait()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two local devices need two cores")
def test_the_guard_judges_an_order_of_parts(daemon: Daemon, program: subprocess.Popen[bytes], tmp_path: Path) -> None:
    job = daemon.eventually("the job runs", daemon.job)
    plain = operator_pb2.ActivateRequest(job=job, strategy_json=strategy(ordered=False), pin=True)
    daemon.eventually("parts without an order are accepted", lambda: daemon.ask("ActivateStrategy", plain))
    daemon.eventually("they are in force", lambda: daemon.splits(job) == len(OTHERS) + 1)
    assert daemon.order(job).startswith("none")

    for attempt in range(TRIALS):
        ordered = operator_pb2.ActivateRequest(job=job, strategy_json=strategy(ordered=True, first_priority=attempt))
        accepted = daemon.eventually("an order is accepted", lambda asked=ordered: daemon.ask("ActivateStrategy", asked))
        trial = daemon.eventually("its trial is over", lambda id_=accepted.strategy_id: daemon.trial(job, id_))
        if trial.outcome == runtime_pb2.Verdict.KEPT or trial.p_value > SIGNIFICANCE:
            break
        daemon.eventually("what was slower is undone", lambda: daemon.order(job).startswith("none"))
    if trial.outcome == runtime_pb2.Verdict.KEPT:
        assert trial.measured_seconds < trial.before_seconds
        assert daemon.splits(job) == len(OTHERS) + 1
        assert daemon.order(job).startswith("control: ") and not daemon.order(job).startswith("control: 0 edges")
        assert "control: " in daemon.show(job)
    else:  # a machine so busy that the rank test could not tell: then it must be undone
        assert trial.outcome == runtime_pb2.Verdict.ROLLED_BACK and trial.p_value > SIGNIFICANCE, trial.reason
        daemon.eventually("what was not shown to be faster is undone", lambda: daemon.order(job).startswith("none"))

    (tmp_path / "stop").touch()
    assert program.wait(SECONDS) == 0
    first, last = json.loads((tmp_path / "out").read_text())
    assert last == pytest.approx(first, rel=1e-4, abs=1e-6)
