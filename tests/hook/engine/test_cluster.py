"""Where ops lie on local workers, by what they are and what the user asked for."""

from __future__ import annotations

from typing import Any

import pytest

from stepd.hook.engine.cluster import WorkerPlacer

tf = pytest.importorskip("tensorflow.compat.v1")

WORKERS = ("/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:1/device:CPU:0")
TRAINER = "/job:localhost/replica:0/task:2/device:CPU:0"


def placed(device: str, soft: bool) -> Any:
    graph = tf.GraphDef()
    graph.node.add(name="a", op="Const", device=device)
    WorkerPlacer(WORKERS, TRAINER, soft).place(graph.node, {})
    return graph.node[0].device


@pytest.mark.parametrize("soft", [True, False])
def test_cpus_are_workers(soft: bool) -> None:
    assert [placed(d, soft) for d in ("", "/cpu:1", "/job:localhost/device:CPU:0")] == [WORKERS[0], WORKERS[1], WORKERS[0]]


def test_other_types_are_workers_only_where_ops_may_run_elsewhere() -> None:
    assert placed("/device:GPU:1", soft=True) == WORKERS[1]
    assert placed("/device:GPU:1", soft=False) == "/device:GPU:1"  # TensorFlow refuses it, as it does plainly
