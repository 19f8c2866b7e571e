"""What two cores can gain at most: the models of bench_splits on one core, and half of the batch on each of two, with nothing sent.

    python tests/benchmarks/bench_split_ceiling.py [--models vgg mlp bert lstm] [--rounds 5] [--steps 6]

Plain TensorFlow in two processes, each pinned to a core with the threads of a local worker. A round is some steps of the whole
batch in the first process alone, of half of it in both at once, and of half of it in both with each step begun together, as
devices that share a model must.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

WARM_UP = 2
WAYS = ("whole", "halves", "together")
PATIENCE = 60.0


def main() -> None:
    """One line a model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--models", nargs="+", default=["vgg", "mlp", "bert", "lstm"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    print(f"{'model':10s} {'batch':>5s}" + "".join(f"{way:>13s}" for way in WAYS) + "   whole over: halves, together", flush=True)
    for model in options.models:
        batch, times = measured(model, options.rounds, options.steps)
        whole, halves, together = (statistics.median(times[way]) for way in WAYS)
        print(
            f"{model:10s} {batch:5d}{whole * 1e3:10.1f} ms{halves * 1e3:10.1f} ms{together * 1e3:10.1f} ms"
            f"   {whole / halves:.2f}, {whole / together:.2f}",
            flush=True,
        )


def measured(model: str, rounds: int, steps: int) -> tuple[int, dict[str, list[float]]]:
    """(batch, median seconds of a step a round and way; of the slower process where both run)."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    pipes = [context.Pipe() for _ in range(2)]
    processes = [
        context.Process(target=work, args=(core, model, steps, pipes[number][1], barrier), daemon=True)
        for number, core in enumerate(sorted(os.sched_getaffinity(0))[:2])
    ]
    for process in processes:
        process.start()
    ends = [here for here, _ in pipes]
    batch = max(end.recv() for end in ends)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            busy = ends[:1] if way == "whole" else ends
            for end in busy:
                end.send(way)
            times[way].append(max(end.recv() for end in busy))
    for end in ends:
        end.send("")
    for process in processes:
        process.join(PATIENCE)
    return batch, times


def work(core: int, name: str, steps: int, pipe: Any, barrier: Any) -> None:
    """One process: does what it is told, and answers with the median seconds of a step."""
    os.sched_setaffinity(0, {core})
    import tensorflow.compat.v1 as tf

    sys.path.insert(0, str(Path(__file__).parents[1] / "hook" / "rewrite"))
    from split_sizes import LARGE, one_device

    tf.disable_eager_execution()
    model = LARGE[name]
    runs = {}
    for size in (model.batch, model.batch // 2):
        with tf.Graph().as_default():
            program = one_device(replace(model, batch=size), late=False)
            config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=2)
            session = tf.Session(config=config)
            session.run(tf.global_variables_initializer())
            fed = {f"{feed}:0": array for feed, array in program.data.arrays.items()}
            runs[size] = session.make_callable(program.train, list(fed)), list(fed.values())
    pipe.send(model.batch)
    while way := pipe.recv():
        step, arrays = runs[model.batch if way == "whole" else model.batch // 2]
        seconds = []
        for _ in range(WARM_UP + steps):
            if way == "together":
                barrier.wait(PATIENCE)
            began = time.perf_counter()
            step(*arrays)
            if way == "together":
                barrier.wait(PATIENCE)
            seconds.append(time.perf_counter() - began)
        if way == "halves":
            barrier.wait(PATIENCE)
        pipe.send(statistics.median(seconds[WARM_UP:]))


if __name__ == "__main__":
    main()
