"""What enforcing execution order gains and costs: nothing, control edges and the native executor, in one session, by turns.

    python tests/benchmarks/bench_order.py [--rounds 7] [--seconds 0.4] [--cases fan,...] [--workers]

Every case is placed by hand on two devices and stays there; the order is by upward rank (the longest way to the end of the step,
by the op times of traced steps). A round measures every way once, in random order, on copies that were made before; a ratio is a
round's median step over that of the same round without an order; many short rounds tell a few per cent, and say how surely. `fan`,
`join` and `backward` are built so that order decides, the others not. In one process both devices share two threads; with --workers
they are two pinned worker processes. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from watcher import Watcher

WAYS = ("none", "control", "native")


# -- cases: each returns (fetches, feed) ---------------------------------------------------------------------------------


def weights(seed: int, *shape: int) -> Any:
    return (np.random.RandomState(seed).randn(*shape) / np.sqrt(shape[0])).astype(np.float32)


def product(tf: Any, value: Any, seed: int, name: str) -> Any:
    """A square matrix times one of random weights."""
    n = int(value.shape[-1])
    return tf.matmul(value, tf.constant(weights(seed, n, n)), name=name)


def fan(tf: Any) -> tuple[Any, dict[Any, Any]]:
    """On device 0 an op that a long chain on device 1 waits for, among short chains that nobody waits for."""
    n = 640
    x = tf.placeholder(tf.float32, [n, n], name="x")

    with tf.device("/cpu:0"):
        ops = [product(tf, product(tf, x, k, f"first{k}"), 20 + k, f"second{k}") for k in range(3)]
        urgent = product(tf, x, 98, "urgent")
        ops += [product(tf, product(tf, x, k, f"first{k}"), 20 + k, f"second{k}") for k in range(3, 6)]
        ends = [tf.reduce_mean(op) for op in ops]
    with tf.device("/cpu:1"):
        for k in range(10):
            urgent = product(tf, urgent, 100 + k, f"chain{k}")
        ends.append(tf.reduce_mean(urgent))
    return ends, {x: weights(0, n, n)}


def join(tf: Any) -> tuple[Any, dict[Any, Any]]:
    """The same, but the chain waits for eight ops of 24: whatever order TensorFlow happens to take, one of them comes late."""
    n = 400
    x = tf.placeholder(tf.float32, [n, n], name="x")

    with tf.device("/cpu:0"):
        urgent, ends = [], []
        for k in range(24):
            first = product(tf, x, k, f"first{k}")
            if k % 3 == 1:
                urgent.append(first)
            else:
                ends.append(tf.reduce_mean(product(tf, first, 50 + k, f"second{k}")))
        value = tf.add_n(urgent)
    with tf.device("/cpu:1"):
        for k in range(28):
            value = product(tf, value, 100 + k, f"chain{k}")
        ends.append(tf.reduce_mean(value))
    return ends, {x: weights(0, n, n)}


def dense(tf: Any, layers: int, width: int, batch: int, device_of: Callable[[int], int]) -> tuple[Any, dict[Any, Any]]:
    x = tf.placeholder(tf.float32, [batch, width], name="x")
    hidden = x
    variables = []
    for k in range(layers):
        with tf.device(f"/cpu:{device_of(k)}"):
            variables.append(tf.get_variable(f"w{k}", initializer=weights(k, width, width), use_resource=True))
            hidden = tf.tanh(tf.matmul(hidden, variables[-1]), name=f"hidden{k}")
    loss = tf.reduce_mean(tf.square(hidden))
    optimizer = tf.train.GradientDescentOptimizer(0.01)
    gradients = tf.gradients(loss, variables, colocate_gradients_with_ops=True)
    return optimizer.apply_gradients(zip(gradients, variables, strict=True)), {x: weights(1, batch, width)}


def backward(tf: Any) -> tuple[Any, dict[Any, Any]]:
    """A dense network cut in two: backwards, each layer has a gradient that the next waits for, and one for the update only."""
    return dense(tf, 8, 768, 512, lambda k: int(k >= 4))


def one_device(tf: Any) -> tuple[Any, dict[Any, Any]]:
    """The same on one device, where order decides little."""
    return dense(tf, 6, 640, 384, lambda k: 0)


def convolutions(tf: Any) -> tuple[Any, dict[Any, Any]]:
    """A chain of convolutions with batch norm and Adam, cut in two: there is hardly anything to order."""
    x = tf.placeholder(tf.float32, [16, 24, 24, 3], name="x")
    hidden, channels = x, 3
    for k in range(6):
        with tf.device(f"/cpu:{int(k >= 3)}"):
            kernel = tf.get_variable(f"k{k}", initializer=weights(k, 3, 3, channels, 24), use_resource=True)
            scale = tf.get_variable(f"s{k}", initializer=np.ones(24, np.float32), use_resource=True)
            hidden = tf.nn.relu(tf.nn.fused_batch_norm(tf.nn.conv2d(hidden, kernel, 1, "SAME"), scale, scale * 0.0)[0])
            channels = 24
    loss = tf.reduce_mean(tf.square(hidden))
    return tf.train.AdamOptimizer(0.001).minimize(loss, colocate_gradients_with_ops=True), {x: weights(1, 16, 24, 24, 3)}


def recurrent(tf: Any) -> tuple[Any, dict[Any, Any]]:
    """Two layers of LSTM cells, unrolled, a layer on each device: thousands of small ops."""
    x = tf.placeholder(tf.float32, [24, 12, 64], name="x")
    sequence = tf.unstack(x, axis=1)
    for layer in range(2):
        with tf.device(f"/cpu:{layer}"):
            kernel = tf.get_variable(f"kernel{layer}", initializer=weights(layer, 128, 256), use_resource=True)
            state = cell = tf.zeros([24, 64])
            outputs = []
            for step in sequence:
                i, j, f, o = tf.split(tf.matmul(tf.concat([step, state], 1), kernel), 4, axis=1)
                cell = cell * tf.sigmoid(f) + tf.sigmoid(i) * tf.tanh(j)
                state = tf.sigmoid(o) * tf.tanh(cell)
                outputs.append(state)
            sequence = outputs
    loss = tf.add_n([tf.reduce_mean(tf.square(step)) for step in sequence])
    return tf.train.AdamOptimizer(0.001).minimize(loss, colocate_gradients_with_ops=True), {x: weights(1, 24, 12, 64)}


CASES: dict[str, Callable[[Any], tuple[Any, dict[Any, Any]]]] = {
    case.__name__: case for case in (fan, join, backward, one_device, convolutions, recurrent)
}


# -- order and measurement ------------------------------------------------------------------------------------------------


def op_seconds(tf: Any, session: Any, fetches: Any, feed: Any, steps: int = 5) -> dict[str, float]:
    """Least time of each op over some traced steps, by the user's names."""
    found: dict[str, float] = {}
    for _ in range(steps):
        metadata = tf.RunMetadata()
        session.run(fetches, feed, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                took = (node.op_end_rel_nanos - node.op_start_rel_nanos) * 1e-9
                if "RecvTensor" not in node.node_name and not node.timeline_label.startswith("_"):
                    found[node.node_name] = min(took, found.get(node.node_name, took))
    return found


def by_upward_rank(view: Any, seconds: dict[str, float]) -> dict[str, int]:
    """Priorities of all ops: the longer the way to the end, the earlier."""
    from stepd.hook.order.walk import needs, sorted_by_needs

    needed = needs(view, view.nodes.keys())
    order = sorted_by_needs(needed) or []
    rank = dict.fromkeys(order, 0.0)
    for name in reversed(order):
        rank[name] += seconds.get(name, 0.0)
        for source in needed[name]:
            rank[source] = max(rank[source], rank[name])
    place = {name: i for i, name in enumerate(order)}
    return {name: i for i, name in enumerate(sorted(order, key=lambda name: (-rank[name], place[name])))}


def put(engine: Any, strategy: Any) -> str:
    from stepd.hook.engine import requests

    with engine.lock:
        outcome = requests.switch_now(engine, engine.switcher(), strategy, [k for k in engine.kinds.all() if k.runs > 1])
        assert outcome.ok, outcome.error
        return str(engine.switcher().live.plan.order.said)


def measure(step: Callable[[], Any], seconds: float) -> float:
    """Median step of `seconds` of steps, at least 5, after two for warming up."""
    step()
    step()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def run_case(
    tf: Any, watcher: Watcher, name: str, rounds: int, seconds: float, ways: tuple[str, ...], workers: bool
) -> dict[str, Any]:
    from stepd.hook.model import LiveStrategy, Order

    with tf.Graph().as_default():
        fetches, feed = CASES[name](tf)
        config = None
        if not workers:
            threads = {"inter_op_parallelism_threads": 2, "intra_op_parallelism_threads": 1, "use_per_session_threads": True}
            config = tf.ConfigProto(device_count={"CPU": 2}, **threads)
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())

            def step() -> None:
                session.run(fetches, feed)

            for _ in range(5):
                step()
            engine = watcher.engines[-1]
            took = op_seconds(tf, session, fetches, feed)
            view, devices = engine.switcher().view(), engine.switcher().devices
            priority = by_upward_rank(view, took)
            pinned = engine.switcher().classes().pinned
            free = {op: devices.home(node) for op, node in view.nodes.items() if op not in pinned}
            strategies = {
                way: LiveStrategy(
                    way, free, {op: priority[op] for op in free}, {op: took.get(op, 0.0) for op in free}, order=Order(way)
                )
                for way in ways
            }
            said = {way: put(engine, strategy) for way, strategy in strategies.items()}
            medians: dict[str, list[float]] = {way: [] for way in ways}
            turns = random.Random(1)
            for _ in range(rounds):
                for way in turns.sample(ways, len(ways)):
                    put(engine, strategies[way])
                    medians[way].append(measure(step, seconds))
    plain = medians["none"]
    result: dict[str, Any] = {"none_ms": round(1e3 * statistics.median(plain), 3)}
    for way in ways[1:]:
        ratios = sorted(mine / theirs for mine, theirs in zip(medians[way], plain, strict=True))
        middle = statistics.median(ratios)
        spread = statistics.median(abs(ratio - middle) for ratio in ratios)
        result[way] = {
            "ratio": round(middle, 3),
            # Of the median of as many normally distributed ratios, from their median absolute deviation.
            "standard_error": round(1.253 * 1.483 * spread / len(ratios) ** 0.5, 4),
            "least": round(ratios[0], 3),
            "most": round(ratios[-1], 3),
            "said": said[way],
        }
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--workers", action="store_true")
    args = parser.parse_args()
    os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1", "STEPD_ENABLE": ""})
    companions = None
    if args.workers:
        from stepd.hook.companions import Companions

        companions = Companions()
        companions.start_workers(os.environ, 2)
    try:
        import tensorflow.compat.v1 as tf

        from stepd.hook import local_devices
        from stepd.hook.engine import install
        from stepd.hook.engine.settings import EngineSettings
        from stepd.hook.model import Order
        from stepd.hook.order.native import provider

        tf.disable_v2_behavior()
        ways: tuple[str, ...] = WAYS
        if provider.executor_type(Order.NATIVE, "")[1]:
            ways = WAYS[:2]
        watcher = Watcher()
        cluster = local_devices.local_cluster if args.workers else None
        with tempfile.TemporaryDirectory() as folder:
            install(watcher, EngineSettings(order=Order.AUTO, state_dir=Path(folder), local_cluster=cluster))
            cases = args.cases.split(",")
            found = {name: run_case(tf, watcher, name, args.rounds, args.seconds, ways, args.workers) for name in cases}
        print(json.dumps({"workers": args.workers, "rounds": args.rounds, "cases": found}, indent=1))
    finally:
        if companions is not None:
            companions.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
