"""What the cost model says of a step on one GPU, beside what the step takes: python tests/benchmarks/bench_gpu_costs.py [name ...]

Graphs of small ops, which are bound by launches, and of large ones. Prints one line a graph: ops, the median step in ms before
and after five traced ones, a traced step, and what the last trace says that each device needs. A step also waits for what it
is fed. On a machine without a GPU the same is said of its CPU.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

sys.path.insert(0, str(Path(__file__).parent))

import gpu_training

from stepd.traces.profile import parse_profile

Made = tuple[tf.Operation, dict[tf.Tensor, Any]]
PLAIN, TRACED = 40, 5


def chain() -> Made:
    x = h = tf.placeholder(tf.float32, [64, 64])
    w = tf.get_variable("w", [64, 64])
    for k in range(200):
        h = tf.nn.relu(tf.matmul(h, w) + float(k))
    return tf.reduce_sum(h).op, {x: np.ones([64, 64])}


def wide() -> Made:
    x = tf.placeholder(tf.float32, [64, 64])
    w, ends = tf.get_variable("w", [64, 64]), []
    for j in range(8):
        h = x + float(j)
        for k in range(50):
            h = tf.tanh(tf.matmul(h, w) * (1.0 + k + 100 * j))
        ends.append(h)
    return tf.reduce_sum(tf.add_n(ends)).op, {x: np.ones([64, 64])}


def tanhs() -> Made:
    x = h = tf.placeholder(tf.float32, [256])
    for _ in range(1000):
        h = tf.tanh(h)
    return tf.reduce_sum(h).op, {x: np.ones([256])}


def towers() -> Made:
    _, train, images, words = gpu_training.model()
    random = np.random.RandomState(0)
    return train, {images: random.rand(64, 32, 32, 3).astype("f"), words: random.randint(0, 5000, [64, 20])}


def lstm() -> Made:
    batch, steps, size = 64, 40, 512
    x = tf.placeholder(tf.float32, [batch, steps, size])
    given = tf.unstack(x, axis=1)
    for layer in range(2):
        w, b = tf.get_variable(f"w{layer}", [2 * size, 4 * size]), tf.get_variable(f"b{layer}", [4 * size])
        h = c = tf.zeros([batch, size])
        hidden = []
        for one in given:
            i, j, f, o = tf.split(tf.matmul(tf.concat([one, h], 1), w) + b, 4, axis=1)
            c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
            h = tf.sigmoid(o) * tf.tanh(c)
            hidden.append(h)
        given = hidden
    loss = tf.reduce_mean(tf.square(tf.add_n(given)))
    fed = np.random.RandomState(0).rand(batch, steps, size).astype("f")
    return tf.train.GradientDescentOptimizer(0.01).minimize(loss), {x: fed}


def attention() -> Made:
    batch, length, size, heads = 16, 128, 512, 8
    x = h = tf.placeholder(tf.float32, [batch, length, size])

    def dense(value: tf.Tensor, name: str, units: int = size) -> tf.Tensor:
        return tf.einsum("btd,de->bte", value, tf.get_variable(name, [value.shape[-1], units]))

    def split(value: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tf.reshape(value, [batch, length, heads, size // heads]), [0, 2, 1, 3])

    for layer in range(4):
        q, k, v = (split(dense(h, f"l{layer}/{name}")) for name in "qkv")
        seen = tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 8.0), v)
        h = h + dense(tf.reshape(tf.transpose(seen, [0, 2, 1, 3]), [batch, length, size]), f"l{layer}/o")
        h = h + dense(tf.nn.relu(dense(h, f"l{layer}/up", 4 * size)), f"l{layer}/down")
    loss = tf.reduce_mean(tf.square(h))
    return tf.train.AdamOptimizer(1e-4).minimize(loss), {x: np.random.RandomState(0).rand(batch, length, size).astype("f")}


GRAPHS: dict[str, Callable[[], Made]] = {f.__name__: f for f in (chain, wide, tanhs, towers, lstm, attention)}


def measure(make: Callable[[], Made]) -> str:
    tf.reset_default_graph()
    target, feeds = make()
    ops = [op.name for op in tf.get_default_graph().get_operations()]
    config = tf.ConfigProto()
    config.gpu_options.allow_growth = True
    with tf.Session(config=config) as session:

        def step(**asked: Any) -> float:
            start = time.perf_counter()
            session.run(target, feeds, **asked)
            return time.perf_counter() - start

        session.run(tf.global_variables_initializer())
        for _ in range(5):
            step()
        before = statistics.median(step() for _ in range(PLAIN))
        for _ in range(TRACED):
            metadata = tf.RunMetadata()
            traced = step(options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
        after = statistics.median(step() for _ in range(PLAIN))
        devices = [device.name for device in session.list_devices()]
    seen = parse_profile(metadata.SerializeToString(), ops, devices, batch=[], seconds=traced)
    needs = {one.device.rpartition("/device:")[2]: one.seconds.sum() * 1e3 for one in seen.devices}
    said = ", ".join(f"{device} {ms:.2f}" for device, ms in sorted(needs.items(), reverse=True))
    return f"{len(ops)} ops, step {before * 1e3:.2f} and {after * 1e3:.2f} ms, traced {traced * 1e3:.1f}; by the trace: {said}"


def main() -> None:
    tf.disable_eager_execution()
    for name in sys.argv[1:] or GRAPHS:
        print(f"{name}: {measure(GRAPHS[name])}", flush=True)


if __name__ == "__main__":
    main()
