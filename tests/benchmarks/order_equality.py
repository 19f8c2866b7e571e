"""Losses of every model of the split tests over many steps, plainly and under execution orders: they must be equal in every bit.

    python tests/benchmarks/order_equality.py [--ways control native] [--steps 100] [--models lenet ...] [--workers]

Every run of `--every` steps has an order of its own: random priorities for all ops, which stay where they are, on two devices
of one process between which the program's ops alternate, layer by layer; with --workers on two worker processes. Every second run
of steps is plain, so that orders are taken back as well. Needs a compiler for `native`.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1] / "hook" / "rewrite"))

import numpy as np
from watcher import Watcher

BATCH = 6


def losses(tf: Any, model: str, dtype: Any, steps: int, before_step: Any) -> Any:
    """Losses of `steps` steps of a program of its own; `before_step(number)` comes before each."""
    from split_models import MODELS, Data

    with tf.Graph().as_default() as graph:
        data = Data(dtype, BATCH)
        data.layers = 2
        with graph.device(alternating()):
            loss, train = MODELS[model](data)
        start = tf.global_variables_initializer()
        threads = {"inter_op_parallelism_threads": 2, "intra_op_parallelism_threads": 1, "use_per_session_threads": True}
        with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2}, **threads)) as session:
            session.run(start)
            found = []
            for step in range(steps):
                before_step(step)
                fed = {f"{name}:0": np.roll(array, step, 0) for name, array in data.arrays.items()}
                found.append(session.run([loss, train], fed)[0])
    return np.array(found)


def alternating() -> Any:
    """A device function: products and convolutions alternate between two devices, what follows them goes along."""
    made = [0]

    def device(op: Any) -> str:
        made[0] += op.type in ("MatMul", "Conv2D", "BatchMatMulV2", "Einsum")
        return f"/cpu:{made[0] % 2}"

    return device


def ordered(engine: Any, way: Any, rng: random.Random, devices: Any) -> Any:
    """All that may move where it is, in a random order; every op costs something, so that all are ordered."""
    from stepd.hook.model import LiveStrategy

    view, pinned = engine.switcher().view(), engine.switcher().classes().pinned
    names = [name for name in view.nodes if name not in pinned]
    priority = list(range(len(names)))
    rng.shuffle(priority)
    placement = {name: devices.home(view.nodes[name]) for name in names}
    return LiveStrategy(
        f"{way.value}-{rng.random()}", placement, dict(zip(names, priority, strict=True)), dict.fromkeys(names, 1e-3), order=way
    )


def put(engine: Any, strategy: Any) -> str:
    """Switch at once; what is said of the order in force."""
    from stepd.hook.engine import requests

    with engine.lock:
        assert strategy is not None or engine.switcher().live is not None, "the order was taken back before its time"
        kinds = [kind for kind in engine.kinds.all() if kind.runs > 1]
        outcome = requests.switch_now(engine, engine.switcher(), strategy, kinds)
        assert outcome.ok, outcome.error
        live = engine.switcher().live
        return str(live.plan.order.said) if live is not None else ""


def main() -> int:
    """Print one line a model, type and way; 1 when any loss differs, or no order was in force."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--types", nargs="+", default=["float32"], choices=["float64", "float32"])
    parser.add_argument("--ways", nargs="+", default=["control", "native"], choices=["control", "native"])
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--workers", action="store_true")
    options = parser.parse_args()
    os.environ["STEPD_ENABLE"] = ""
    companions = None
    if options.workers:
        from stepd.hook.companions import Companions

        companions = Companions()
        companions.start_workers(os.environ, 2)
    try:
        with tempfile.TemporaryDirectory() as folder:
            return compare(options, Path(folder))
    finally:
        if companions is not None:
            companions.end()


def compare(options: argparse.Namespace, folder: Path) -> int:
    """Every model by every way."""
    import tensorflow.compat.v1 as tf

    from stepd.hook import local_devices
    from stepd.hook.engine import install
    from stepd.hook.engine.settings import EngineSettings
    from stepd.hook.model import Order
    from stepd.hook.order.native import provider

    tf.disable_v2_behavior()
    from split_models import MODELS

    ways = [Order(way) for way in options.ways]
    if Order.NATIVE in ways and (why := provider.executor_type(Order.NATIVE, "")[1]):
        print(f"native is left out: {why}")
        ways.remove(Order.NATIVE)
    watcher = Watcher()
    install(
        watcher,
        EngineSettings(order=Order.AUTO, state_dir=folder, local_cluster=local_devices.local_cluster if options.workers else None),
    )
    failed = 0
    for model in options.models or sorted(MODELS):
        for dtype in map(np.dtype, options.types):
            plain = losses(tf, model, dtype, options.steps, lambda _: None)
            for way in ways:
                said: list[str] = []
                rng = random.Random(model)

                def turn(step: int, way: Order = way, said: list[str] = said, rng: random.Random = rng) -> None:
                    if step and step % options.every == 0:
                        engine = watcher.engines[-1]
                        back = step // options.every % 2 == 0
                        text = put(engine, None if back else ordered(engine, way, rng, engine.switcher().devices))
                        said.extend([text] if text else [])

                under = losses(tf, model, dtype, options.steps, turn)
                equal = plain.tobytes() == under.tobytes()
                failed += not (equal and said and all(text.startswith(f"{way.value}: ") for text in said))
                print(
                    f"{model:10s} {dtype.name} {way.value:8s} {len(said)} orders, {options.steps} losses "
                    f"{'equal in every bit' if equal else 'DIFFER'}; {said[-1] if said else 'no order'}",
                    flush=True,
                )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
