"""A GraphDef and the RunMetadata that TensorFlow itself wrote, planned without TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorflow")

TRACED = """
import sys, tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
with tf.device("/cpu:0"):
    weights = v1.get_variable("weights", [64, 64], use_resource=True)
    left = tf.matmul(v1.random_normal([64, 64], name="noise"), weights, name="left")
with tf.device("/cpu:1"):
    right = tf.nn.relu(left, name="right")
loss = tf.reduce_sum(right, name="loss")
step = v1.train.GradientDescentOptimizer(0.1).minimize(loss, name="step")
unused = tf.exp(loss, name="unused")
metadata = v1.RunMetadata()
config = v1.ConfigProto(device_count={"CPU": 2})
config.graph_options.rewrite_options.disable_meta_optimizer = True
with v1.Session(config=config) as session:
    session.run(v1.global_variables_initializer())
    session.run(step, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=metadata)
folder = sys.argv[1]
open(folder + "/graph.pb", "wb").write(v1.get_default_graph().as_graph_def().SerializeToString())
open(folder + "/metadata.pb", "wb").write(metadata.SerializeToString())
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traced")
    subprocess.run([sys.executable, "-c", TRACED, str(folder)], check=True, capture_output=True, timeout=240)
    return folder


def stepctl(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stepd.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_traced_step_is_planned_and_simulated(traced: Path, tmp_path: Path) -> None:
    given = (traced / "graph.pb", "--run-metadata", traced / "metadata.pb", "--device-memory", "1GiB")
    planned = stepctl("plan", given[0], *given[1:], "-o", tmp_path / "s.json", "--algorithm", "single")
    assert planned.returncode == 0, planned.stderr
    simulated = stepctl("simulate", given[0], tmp_path / "s.json", *given[1:], "-o", "json")
    assert simulated.returncode == 0, simulated.stderr
    step = json.loads(simulated.stdout)
    assert [device["memory_bytes"] for device in step["devices"]] == [1 << 30] * 2
    assert step["step_seconds"] > 0
    on_path = {segment["op"] for segment in step["critical_path"]}
    assert {"left", "right"} <= on_path
    assert "unused" not in on_path
    # The weights stay; one product of 64 x 64 floats at least is alive beside them.
    assert max(device["peak_bytes"] for device in step["devices"]) >= 2 * 64 * 64 * 4


def test_a_graph_without_statistics_of_it_is_refused(traced: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.pb").write_bytes(b"")
    for metadata, words in (("empty.pb", "FULL_TRACE"), ("broken.pb", "not RunMetadata")):
        (tmp_path / "broken.pb").write_bytes(b"\x0a\xff")
        answer = stepctl("plan", traced / "graph.pb", "--run-metadata", tmp_path / metadata, "-o", tmp_path / "s.json")
        assert answer.returncode == 2
        assert words in answer.stderr
        assert "Traceback" not in answer.stderr
