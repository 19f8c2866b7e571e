"""Data parallelism found by stepd on two local devices, against one of them and against what is written by hand for two.

    python tests/benchmarks/bench_splits.py [--models vgg mlp bert lstm vgg-dense] [--rounds 5] [--steps 6] [--small] [--late]

Starts itself under `stepd-run --local-devices 2`; in there the engine is driven directly, without a daemon. A round is some steps
of each: the program on one device, two towers written by hand (variables on both devices), layers placed by hand, the first
program with `replicate` in force, and with what the planner makes of traced steps of it, without an order and with its own where it
has one, which is what a daemon has in force.
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

WARM_UP = 2
COLUMNS = ("one device", "two towers", "layers", "replicated", "planned", "ordered")
TRACED = 4


def parent(arguments: list[str]) -> int:
    """Run this script once a model on two pinned workers."""
    launcher = Path(sys.executable).with_name("stepd-run")
    plain = {**os.environ, "STEPD_ENABLE": "", "TF_CPP_MIN_LOG_LEVEL": "2"}
    options = parse(arguments)
    print(
        f"{'model':10s} {'batch':>5s}" + "".join(f"{name:>13s}" for name in COLUMNS) + "   stepd over: one, best by hand",
        flush=True,
    )
    for model in options.models:
        command = [str(launcher), "--local-devices", "2", "--", "env", "STEPD_ENABLE=0", sys.executable, __file__, "--child"]
        command += ["--models", model, "--rounds", str(options.rounds), "--steps", str(options.steps)]
        command += [f"--{name}" for name in ("late", "small") if getattr(options, name)]
        done = subprocess.run(command, env=plain, stdout=subprocess.PIPE, text=True, check=False)
        line = next((text for text in done.stdout.splitlines() if text.startswith("{")), "")
        if done.returncode or not line:
            return done.returncode or 1
        show(model, json.loads(line))
    return 0


def show(model: str, got: dict[str, Any]) -> None:
    """One line a model."""
    medians = {name: statistics.median(got["times"][name]) for name in COLUMNS}
    mine, by_hand = medians["ordered"], min(medians["two towers"], medians["layers"])
    print(
        f"{model:10s} {got['batch']:5d}"
        + "".join(f"{medians[name] * 1e3:10.1f} ms" for name in COLUMNS)
        + f"   {medians['one device'] / mine:.2f}, {by_hand / mine:.2f} ({got['splits']} ops in parts, "
        f"losses differ by {got['difference']:.1e} relative)",
        flush=True,
    )


def child(options: argparse.Namespace) -> None:
    """Train one model here in all ways by turns, and print what it took."""
    from dataclasses import replace

    import numpy as np
    import tensorflow.compat.v1 as tf

    sys.path.insert(0, str(Path(__file__).parents[1] / "hook" / "rewrite"))
    from split_sizes import LARGE, SMALL, layers_placed, one_device, two_towers

    from stepd.hook import local_devices
    from stepd.hook.engine import install
    from stepd.hook.engine.settings import EngineSettings
    from stepd.hook.model import LiveStrategy, Order, Way

    sys.path.insert(0, str(Path(__file__).parent))
    from split_planning import CostModels, describe, learn, live, plan

    tf.disable_eager_execution()
    heard = Heard()
    install(heard, EngineSettings(local_cluster=local_devices.local_cluster))
    name = options.models[0]
    model = replace(LARGE[name], batch=SMALL[name]) if options.small else LARGE[name]
    runs = {}
    for way, write in (("one device", one_device), ("two towers", two_towers), ("layers", layers_placed)):
        with tf.Graph().as_default():
            runs[way] = Running(write(model, options.late))
        runs[way].steps(WARM_UP)
    plain = runs["one device"]
    engine = heard.engines[0]
    times: dict[str, list[float]] = {name: [] for name in COLUMNS}
    before = plain.losses(5)
    differences: dict[str, float] = {}

    def switch(strategy: LiveStrategy) -> None:
        done = heard.ask(lambda done: engine.request_switch(strategy, Way.IN_SESSION, done), lambda: plain.steps(1))
        assert done.ok, done.error

    strategies = {"replicated": LiveStrategy("all", {}, replicate=True)}
    models = CostModels()
    today = learn(models, engine, heard.trace(plain))
    switch(strategies["replicated"])
    plain.steps(1)
    learn(models, engine, heard.trace(plain))
    heard.ask(lambda done: engine.request_rollback("bench", done), lambda: None)
    found = plan(engine, models, today, (plain.train_name,), statistics.median(plain.steps(options.steps)))
    if found is not None:
        strategies |= {"planned": live(engine, found, Order.NONE), "ordered": live(engine, found, Order.AUTO)}
        print(describe(engine.planned, found), file=sys.stderr, flush=True)
    for _ in range(options.rounds):
        for way, running in runs.items():
            times[way].append(statistics.median(running.steps(options.steps)))
        for way, strategy in strategies.items():
            switch(strategy)
            times[way].append(statistics.median(plain.steps(options.steps)))
            if way not in differences:
                differences[way] = float(np.max(np.abs(before - plain.losses(5)) / np.abs(before)))
        heard.ask(lambda done: engine.request_rollback("bench", done), lambda: None)
    for way in COLUMNS:
        times[way] = times[way] or times["one device"]  # nothing better was planned: the program stays as it is
    result = {
        "times": times,
        "splits": len(found.splits) if found else 0,
        "predicted": found.seconds if found else 0.0,
        "difference": max(differences.values()),
        "batch": model.batch,
    }
    print(json.dumps(result))


class Running:
    """A program in a session of its own."""

    def __init__(self, program: Any) -> None:
        import tensorflow.compat.v1 as tf

        self._program = program
        self._start = tf.global_variables_initializer()
        self._fed = {f"{name}:0": array for name, array in program.data.arrays.items()}
        self._session = tf.Session()
        self.train_name = str(program.train.name)
        self._session.run(self._start)

    def steps(self, count: int) -> list[float]:
        """Seconds of each of `count` steps, after some that are not counted."""
        seconds = []
        for _ in range(WARM_UP + count):
            began = time.perf_counter()
            self._session.run(self._program.train, self._fed)
            seconds.append(time.perf_counter() - began)
        return seconds[WARM_UP:]

    def losses(self, count: int) -> Any:
        """Losses of the first `count` steps, from the start."""
        import numpy as np

        self._session.run(self._start)
        both = [self._program.loss, self._program.train]
        return np.array([self._session.run(both, self._fed)[0] for _ in range(count)])


class Heard:
    """An observer that keeps engines, and asks them for switches."""

    def __init__(self) -> None:
        self.engines: list[Any] = []
        self._tracing = False
        self._traced: list[Any] = []

    def session_opened(self, engine: Any) -> None:
        self.engines.append(engine)

    def wants_trace(self, engine: Any, kind: Any) -> bool:
        return self._tracing

    def graph_extended(self, *_: Any) -> None: ...

    def run_finished(self, engine: Any, record: Any) -> None:
        if record.traced and record.metadata:
            self._traced.append(record)

    def trace(self, running: Any) -> list[Any]:
        """The records of some traced steps."""
        self._tracing, self._traced = True, []
        running.steps(TRACED)
        self._tracing = False
        return self._traced[WARM_UP:]

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
    parser.add_argument("--models", nargs="+", default=["vgg", "mlp", "bert", "lstm", "vgg-dense"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--small", action="store_true", help="batches at which one device is nearly enough")
    parser.add_argument("--late", action="store_true", help="the batch size is known at run time only")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    given = parse(sys.argv[1:])
    if given.child:
        child(given)
    else:
        sys.exit(parent(sys.argv[1:]))
