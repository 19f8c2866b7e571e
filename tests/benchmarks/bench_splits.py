"""Data parallelism found by stepd on two local devices against one of them: step times and losses, interleaved.

    python tests/benchmarks/bench_splits.py [--models vgg mlp bert lstm] [--rounds 5] [--steps 10] [--late]

Starts itself under `stepd-run --local-devices 2`; in there the engine is driven directly, without a daemon: a round is some steps
of the program's own placement, then some with `replicate` in force.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

WARM_UP = 3


def parent(arguments: list[str]) -> int:
    """Run this script once a model on two pinned workers."""
    launcher = Path(sys.executable).with_name("stepd-run")
    plain = {**os.environ, "STEPD_ENABLE": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    options = parse(arguments)
    for model in options.models:
        command = [str(launcher), "--local-devices", "2", "--", "env", "STEPD_ENABLE=0", sys.executable, __file__, "--child"]
        command += ["--models", model, "--rounds", str(options.rounds), "--steps", str(options.steps)]
        command += ["--late"] if options.late else []
        done = subprocess.run(command, env=plain, stdout=subprocess.PIPE, text=True, check=False)
        line = next((text for text in done.stdout.splitlines() if text.startswith("{")), "")
        if done.returncode or not line:
            return done.returncode or 1
        show(model, json.loads(line))
    return 0


def show(model: str, got: dict[str, Any]) -> None:
    """One line a model."""
    before, after = statistics.median(got["plain"]), statistics.median(got["split"])
    print(
        f"{model:10s} one device {before * 1e3:7.1f} ms, replicated {after * 1e3:7.1f} ms: {before / after:.2f} times; "
        f"{got['splits']} ops in parts, switch {got['switch']:.2f} s, losses differ by {got['difference']:.1e} relative"
    )


def child(options: argparse.Namespace) -> None:
    """Train one model here, in turn on its own placement and replicated."""
    import numpy as np
    import tensorflow.compat.v1 as tf

    sys.path.insert(0, str(Path(__file__).parents[1] / "hook" / "rewrite"))
    from split_sizes import LARGE

    from stepd.hook import local_devices
    from stepd.hook.engine import install
    from stepd.hook.engine.settings import EngineSettings
    from stepd.hook.model import LiveStrategy, Way

    tf.disable_eager_execution()
    heard = Heard()
    install(heard, EngineSettings(local_cluster=local_devices.local_cluster))
    data, loss, train = LARGE[options.models[0]](options.late)
    start = tf.global_variables_initializer()
    fed = {f"{name}:0": array for name, array in data.arrays.items()}
    with tf.Session() as session:

        def steps(count: int) -> list[float]:
            seconds = []
            for _ in range(count):
                began = time.perf_counter()
                session.run(train, fed)
                seconds.append(time.perf_counter() - began)
            return seconds[WARM_UP:]

        def losses(count: int) -> Any:
            session.run(start)
            return np.array([session.run([loss, train], fed)[0] for _ in range(count)])

        session.run(start)
        steps(WARM_UP)
        (engine,) = heard.engines
        times: dict[str, list[float]] = {"plain": [], "split": []}
        plain_losses, split_losses, outcome, switched = losses(5), None, None, []
        for _ in range(options.rounds):
            times["plain"].append(statistics.median(steps(options.steps)))
            began = time.perf_counter()
            outcome = heard.ask(lambda done: engine.request_switch(LiveStrategy("all", {}, replicate=True), Way.IN_SESSION, done),
                                lambda: steps(1))  # fmt: skip
            assert outcome.ok, outcome.error
            switched.append(time.perf_counter() - began)
            times["split"].append(statistics.median(steps(options.steps)))
            split_losses = losses(5) if len(switched) == 1 else split_losses
            heard.ask(lambda done: engine.request_rollback("bench", done), lambda: None)
        assert outcome is not None
        difference = float(np.max(np.abs(plain_losses - split_losses) / np.abs(plain_losses)))
        print(json.dumps({**times, "splits": outcome.splits_in_force, "switch": switched[0], "difference": difference}))


class Heard:
    """An observer that keeps engines, and asks them for switches."""

    def __init__(self) -> None:
        self.engines: list[Any] = []

    def session_opened(self, engine: Any) -> None:
        self.engines.append(engine)

    def wants_trace(self, engine: Any, kind: Any) -> bool:
        return False

    def graph_extended(self, *_: Any) -> None: ...

    def run_finished(self, *_: Any) -> None: ...

    def strategy_failed(self, *_: Any) -> None: ...

    def switch_done(self, *_: Any) -> None: ...

    def session_closed(self, *_: Any) -> None: ...

    def ask(self, request: Any, meanwhile: Any) -> Any:
        """What a request came to; `meanwhile` is done until then."""
        came, outcomes = threading.Event(), []

        def done(outcome: Any) -> None:
            outcomes.append(outcome)
            came.set()

        request(done)
        while not came.wait(0.01):
            meanwhile()
        return outcomes[0]


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", default=["vgg", "mlp", "bert", "lstm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--late", action="store_true", help="the batch size is known at run time only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse(sys.argv[1:])
    if given.child:
        child(given)
    else:
        sys.exit(parent(sys.argv[1:]))
