"""What a switch costs at a given number of ops: how much longer than plain ones the worst step takes while the switch is
prepared, and the step that switches; memory; the cost of a run afterwards.

    python tests/benchmarks/bench_switch_cost.py [--ops 10000] [--switches 6] [--devices 3] [--way auto|in-session|restart]
        [--state 500]

Drives the engine as the observer does (request_switch, then steps until it is done). The steps are a few milliseconds
long, so that they hide nothing of what TensorFlow does meanwhile. Goals: wait <= 0.2 s, <= 50 MB a switch. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from watcher import Watcher

TABLE_MB = 25


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def build(ops: int, megabytes: int, tf: Any) -> tuple[Any, Any]:
    """A training graph of at least `ops` operations: a deep stack of small layers with Adam, and tables of so many MB of which each
    step reads a row."""
    x = tf.placeholder(tf.float32, [4, 8], name="x")
    hidden, k = x, 0
    for first in range(0, megabytes, TABLE_MB):
        shape = [min(TABLE_MB, megabytes - first) * 31_250, 8]
        table = tf.get_variable(f"table{first}", shape, initializer=tf.ones_initializer(), use_resource=True, trainable=False)
        hidden = hidden + tf.nn.embedding_lookup(table, [0, 1, 2, 3])
    while len(tf.get_default_graph().get_operations()) < ops * 5 // 16:  # the rest comes with the gradients and Adam
        w = tf.get_variable(f"w{k}", [8, 8], initializer=tf.glorot_uniform_initializer(seed=k), use_resource=True)
        hidden = hidden + tf.nn.tanh(tf.matmul(hidden, w) + 0.01) * 0.1
        k += 1
    train = tf.train.AdamOptimizer(1e-3).minimize(tf.reduce_mean(tf.square(hidden)))
    return x, train


def step_times(step: Any, count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", type=int, default=10_000)
    parser.add_argument("--switches", type=int, default=6)
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--state", type=int, default=0, help="MB of variables beside the layers")
    parser.add_argument("--way", default="auto", choices=["auto", "in-session", "restart"])
    args = parser.parse_args()
    os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "STEPD_ENABLE": ""})
    import tensorflow.compat.v1 as tf

    from stepd.hook.engine import install
    from stepd.hook.engine.settings import EngineSettings
    from stepd.hook.model import LiveStrategy, Way

    tf.disable_v2_behavior()
    watcher = Watcher()
    install(watcher, EngineSettings(copies=args.switches + 2))
    x, train = build(args.ops, args.state, tf)
    init = tf.global_variables_initializer()
    graph = tf.get_default_graph()
    stateless = [op.name for op in graph.get_operations() if op.type in ("MatMul", "Mul", "AddV2", "Tanh", "TanhGrad", "Sum")]
    result: dict[str, Any] = {"ops": len(graph.get_operations()), "switches": []}
    with tf.Session(config=tf.ConfigProto(device_count={"CPU": args.devices})) as sess:
        sess.run(init)
        feed = {x: [[0.1] * 8] * 4}

        def step() -> None:
            sess.run(train, feed)

        step_times(step, 5)
        base = step_times(step, 300)
        result |= {"step_seconds": statistics.median(base), "worst_plain_step_seconds": max(base)}
        engine = watcher.engines[-1]
        for n in range(args.switches):
            rng = random.Random(n)
            some = rng.sample(stateless, len(stateless) // 3)
            placement = {name: f"/job:localhost/replica:0/task:0/device:CPU:{rng.randrange(args.devices)}" for name in some}
            result["switches"].append(one_switch(engine, LiveStrategy(f"s{n}", placement), Way(args.way), step))
        done = threading.Event()
        engine.request_rollback("the end of the measurement", lambda _: done.set())
        while not done.is_set():
            step()
        result["step_seconds_after_rollback"] = statistics.median(step_times(step, 20))
    plain = result["step_seconds"]
    preparing = [s["worst_step_while_preparing"] - plain for s in result["switches"]]
    switching = [s["switching_step_seconds"] - plain for s in result["switches"]]
    result["worst_wait_while_preparing_seconds"], result["worst_wait_of_switching_step_seconds"] = max(preparing), max(switching)
    result["median_wait_while_preparing_seconds"] = statistics.median(preparing)
    result["mb_per_switch"] = statistics.median(s["mb"] for s in result["switches"])
    worst = max(*preparing, *switching)
    result["goals"] = {"wait <= 0.2 s": worst <= 0.2, "<= 50 MB a switch": result["mb_per_switch"] <= 50}
    print(json.dumps(result, indent=1))
    return 0


def one_switch(engine: Any, strategy: Any, way: Any, step: Any) -> dict[str, Any]:
    """Asks for a switch and goes on stepping until it is in force, then ten steps on it."""
    before, outcomes = resident(), []
    engine.request_switch(strategy, way, outcomes.append)
    start, during, switching = time.perf_counter(), [], []
    while not outcomes:
        old = engine.strategy_id
        (seconds,) = step_times(step, 1)
        (during if engine.strategy_id == old and not switching else switching).append(seconds)
    prepared = time.perf_counter() - start
    after = step_times(step, 20)
    outcome = outcomes[0]
    return {
        "ok": outcome.ok,
        "error": outcome.error,
        "prepare_seconds": outcome.prepare_seconds,
        "until_done_seconds": prepared,
        "reported_wait_seconds": outcome.wait_seconds,
        "way": outcome.way.value,
        "why": outcome.why_this_way,
        "steps_while_preparing": len(during),
        "worst_step_while_preparing": max(during, default=0.0),
        "switching_step_seconds": max(switching + after[:1]),
        "step_seconds": statistics.median(after),
        "honoured": outcome.honoured,
        "mb": (resident() - before) / (1 << 20),
    }


if __name__ == "__main__":
    sys.exit(main())
