"""The order of ops on local workers: what they are told over real sockets, and a program on real workers that keep one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepd.hook.local_order import WorkerTables
from stepd.hook.order.native.stamp import NativeError

PROGRAM = """
import json
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()
tf.set_random_seed(1)
x = tf.placeholder(tf.float32, [32, 8, 8, 3])
numbers = np.random.RandomState(0)

def weights(*shape):
    return tf.Variable(numbers.randn(*shape).astype(np.float32) * 0.1, use_resource=len(shape) > 2)

def tower():
    return tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, weights(3, 3, 3, 8), 1, "SAME")), weights(3, 3, 8, 4), 1, "VALID")

logits = tf.matmul(tf.reshape(tf.concat([tower() for _ in range(4)], 3), [32, -1]), weights(576, 5))
loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=np.arange(32) % 5, logits=logits))
step = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss)
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    seen = [float(session.run([loss, step], {x: numbers.randn(32, 8, 8, 3)})[0]) for _ in range(30)]
print(json.dumps(seen))
"""


class Answering:
    """A worker's socket that answers what it is told to, and keeps what it is asked."""

    def __init__(self, path: Path) -> None:
        self.path, self.asked, self.answer = str(path), list[dict[str, object]](), b'{"done": true}'
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.path)
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self.asked.append(json.loads(b"".join(iter(lambda c=connection: c.recv(65536), b""))))
                if "forget" in self.asked[-1]:
                    return
                connection.sendall(self.answer)

    def until_told_to_forget(self) -> None:
        self._thread.join(60.0)
        assert not self._thread.is_alive()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[Answering]]:
    made = [Answering(tmp_path / f"{k}.sock") for k in range(2)]
    yield made
    for worker in made:
        worker.stop()


def test_all_workers_are_told_an_order_and_forget_it(workers: list[Answering]) -> None:
    tables = WorkerTables([worker.path for worker in workers])
    assert tables.keep() == "" and tables.keep() == ""
    table = tables.new_table()
    assert table != WorkerTables([]).new_table()
    tables.add(table, {"a": 2, "b": 1})
    tables.drop(table)
    for worker in workers:
        worker.until_told_to_forget()
        assert worker.asked == [{"keep_order": 1}, {"table": table, "priorities": {"a": 2, "b": 1}}, {"forget": table}]


@pytest.mark.parametrize("answer", [b'{"problem": "a reason"}', b"", b"[1]", b"{"])
def test_one_worker_that_does_not_is_enough_to_go_without(workers: list[Answering], answer: bytes) -> None:
    tables = WorkerTables([worker.path for worker in workers])
    workers[1].answer = answer
    why = tables.keep()
    assert why == "a reason" if b"reason" in answer else workers[1].path in why
    with pytest.raises(NativeError, match="not told to all workers"):
        tables.add(1, {"a": 1})
    workers[1].answer = b'{"done": true}'
    assert tables.keep() == ""  # it is asked again: the executor may have been built by now


def test_workers_that_are_gone_are_named(tmp_path: Path) -> None:
    tables = WorkerTables([str(tmp_path / "gone.sock")])
    assert "gone.sock" in tables.keep()
    with pytest.raises(NativeError, match=r"gone\.sock"):
        tables.add(1, {"a": 1})
    tables.drop(1)  # by garbage collection: nothing to raise to


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two local devices need two cores")
def test_a_program_on_workers_that_keep_random_orders_trains_as_without(native: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    plain = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")} | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    chaos = {"STEPD_CHAOS": "switch-every=3,way=in-session,seed=4,order=1", "STEPD_ORDER": "native", "STEPD_REPORT": str(report)}
    launcher = [sys.executable, "-m", "stepd.hook.launcher", "--no-daemon", "--local-devices", "2"]

    def losses(environ: dict[str, str], *before: str) -> list[float]:
        command = [*before, sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return list(json.loads(done.stdout.splitlines()[-1]))

    seen = losses(plain | chaos | {"XDG_CACHE_HOME": str(native.parents[3])}, *launcher)
    events = [json.loads(line) for line in report.read_text().splitlines()]
    orders = [event["order"] for event in events if event["event"] == "switch" and event["ok"] and event["order"]]
    assert len(orders) >= 4
    assert all(order.startswith("native: ") for order in orders), orders
    assert seen == losses(plain, *launcher)
