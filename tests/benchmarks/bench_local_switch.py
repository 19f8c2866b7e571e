"""What a switch costs on local devices: how much longer than plain ones the worst step takes while the switch is prepared, and the
steps that run first on what is new, for the demo's training script.

    python tests/benchmarks/bench_local_switch.py [--way in-session|restart] [--switches 4] [--batch 48] [--phases]

Starts two workers as stepd-run does, and drives the engine as the observer does: request_switch, steps until it is done, some
more, a rollback, steps. Every switch is to another strategy that moves variables. `--phases` prints what of the engine's calls of
TensorFlow took longest, in order, with the thread that made them. Goal: no step waits for more than 0.2 s. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.util
import json
import os
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from watcher import Watcher

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "train_digits.py"
CALLS = (
    "import_graph_def",
    "extend_session",
    "run_session",
    "run_own",
    "make_callable",
    "run_callable",
    "new_session",
    "delete_session",
)


class Phases:
    """How long the engine's calls of TensorFlow took."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.seen: list[tuple[float, float, str, str]] = []

    def watch(self, owner: Any, name: str) -> None:
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return inner(*args, **kwargs)
            finally:
                self.note(start, name)

        setattr(owner, name, call)

    def note(self, start: float, name: str) -> None:
        now = time.perf_counter()
        self.seen.append((start, now - start, name, threading.current_thread().name))

    def show(self, least: float = 0.004) -> None:
        for start, seconds, name, thread in sorted(self.seen):
            if seconds >= least:
                print(f"{(start - self.began) * 1e3:9.1f} {seconds * 1e3:8.1f} ms  {name:18} {thread}", file=sys.stderr)
        self.seen.clear()


def training(batch: int) -> tuple[Any, Any]:
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLE)
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    images, labels = example.batches(batch)
    loss, train = example.build(images, labels, lambda half: contextlib.nullcontext())
    return loss, train


def placement(number: int, names: list[str], device: str) -> dict[str, str]:
    """The branches of half of the blocks' work, another one each time: ops, their gradients and their variables."""
    parts = (("/deep",), ("/wide", "/narrow"), ("block0/deep", "block1/wide"), ("block1/deep", "block0/wide"))
    wanted = parts[number % len(parts)]
    return {name: device for name in names if any(part in name for part in wanted)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", default="in-session", choices=["auto", "in-session", "restart"])
    parser.add_argument("--switches", type=int, default=4)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--phases", action="store_true")
    args = parser.parse_args()
    os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "STEPD_ENABLE": ""})
    from stepd.hook.companions import Companions

    companions = Companions()
    try:
        companions.start_workers(os.environ, 2)
        return measure(args)
    finally:
        companions.end()


def measure(args: argparse.Namespace) -> int:
    import tensorflow.compat.v1 as tf

    from stepd.hook import local_devices
    from stepd.hook.engine import capi, install
    from stepd.hook.engine.settings import EngineSettings
    from stepd.hook.model import LiveStrategy, Way

    tf.disable_v2_behavior()
    phases = Phases()
    if args.phases:
        for name in CALLS:
            phases.watch(capi, name)
    watcher = Watcher()
    install(watcher, EngineSettings(copies=args.switches + 2, local_cluster=local_devices.local_cluster))
    loss, train = training(args.batch)
    graph = tf.get_default_graph()
    result: dict[str, Any] = {"ops": len(graph.get_operations()), "switches": []}
    names = [op.name for op in graph.get_operations()]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses: list[float] = []

        def step() -> float:
            start = time.perf_counter()
            losses.append(float(session.run([loss, train])[0]))
            phases.note(start, "-- step")
            return time.perf_counter() - start

        first = step()
        plain = [step() for _ in range(args.steps)]
        result |= {"first_step_seconds": first, "step_seconds": statistics.median(plain), "worst_plain_step_seconds": max(plain)}
        engine = watcher.engines[-1]
        device = local_devices.device_name(1)
        phases.seen.clear()
        for number in range(args.switches):
            strategy = LiveStrategy(f"s{number}", placement(number, names, device))
            made = switch(engine, functools.partial(engine.request_switch, strategy, Way(args.way)), step, args.steps)
            result["switches"].append(made)
            if args.phases:
                print(f"--- switch {number}: {made}", file=sys.stderr)
                phases.show()
            back = switch(engine, functools.partial(engine.request_rollback, "measured"), step, args.steps)
            made["back"] = {key: back[key] for key in ("worst_wait_while_preparing", "wait_of_first_steps", "step_seconds", "ok")}
            if args.phases:
                print(f"--- back {number}: {back}", file=sys.stderr)
                phases.show()
    waits = [s[key] for s in result["switches"] for key in ("worst_wait_while_preparing", "wait_of_first_steps")]
    waits += [s["back"][key] for s in result["switches"] for key in ("worst_wait_while_preparing", "wait_of_first_steps")]
    result["worst_wait_seconds"] = max(waits)
    result["losses"] = losses
    print(json.dumps(result, indent=1))
    return 0


def switch(engine: Any, request: Any, step: Any, count: int) -> dict[str, Any]:
    """Asks for a switch, steps until it is in force, then `count` times. A wait is what a step took beyond the median."""
    outcomes: list[Any] = []
    epoch = engine.routing.epoch
    request(outcomes.append)
    during: list[float] = []
    after: list[float] = []
    while not outcomes:
        (during if engine.routing.epoch == epoch and not after else after).append(step())
    after += [step() for _ in range(count)]
    outcome = outcomes[0]
    calm = statistics.median(after[-count:])
    before = statistics.median(during) if during else calm
    return {
        "ok": outcome.ok,
        "error": outcome.error,
        "way": outcome.way.value,
        "prepare_seconds": outcome.prepare_seconds,
        "reported_wait_seconds": outcome.wait_seconds,
        "not_honoured": len(outcome.not_honoured),
        "honoured": outcome.honoured,
        "during": [round(seconds, 4) for seconds in during],
        "after": [round(seconds, 4) for seconds in after],
        "step_seconds": calm,
        "worst_wait_while_preparing": max(during, default=0.0) - before if during else 0.0,
        "wait_of_first_steps": max(after[:3]) - calm,
    }


if __name__ == "__main__":
    sys.exit(main())
