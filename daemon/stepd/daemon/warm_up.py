"""Compile the planners' kernels before they are needed: `stepd warm-up`, at installation or when an image is built; and
`python -m stepd.daemon.warm_up`, by which a daemon does it while nobody waits for a plan yet.

In processes of their own when there are cores for them; kernels land where planner processes will look for them.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import numpy as np

from stepd.core.errors import PlannerError
from stepd.core.placement import registry
from stepd.core.portfolio import planner as portfolio
from stepd.core.prepared import prepare
from stepd.core.problem import Device, Link, Problem, SplitChoice
from stepd.core.reach import connected_ops
from stepd.daemon.planner_process import NICEST, give_way
from stepd.kernels import cache


def tiny_problem() -> Problem:
    """Two chains of two ops on two devices, with all that some kernel is called for: towers, an op that is better split, more bytes
    that stay than a device holds."""
    pairs = [(0, 1), (2, 3)]
    return Problem(
        name="warm-up",
        devices=(Device("a", "CPU", 1 << 20), Device("b", "CPU", 1 << 20)),
        links=(Link(0, 1, 1e9, 1e-4), Link(1, 0, 1e9, 1e-4)),
        op_names=("tower_0/a", "tower_0/b", "tower_1/c", "tower_1/d"),
        op_types=("MatMul",) * 4,
        seconds=np.array([[0.01] * 2, [0.01] * 2, [0.001] * 2, [0.001] * 2]),
        resident_bytes=np.array([600_000, 0, 600_000, 0], dtype=np.int64),
        temp_bytes=np.zeros(4, dtype=np.int64),
        colocation=np.array([-1, -1, 0, 0], dtype=np.int32),
        edge_src=np.array([src for src, _ in pairs], dtype=np.int32),
        edge_dst=np.array([dst for _, dst in pairs], dtype=np.int32),
        edge_output=np.zeros(2, dtype=np.int32),
        edge_bytes=np.full(2, 1000, dtype=np.int64),
        split_choices=(SplitChoice(1, "batch", 2, (1000,), (1000,)),),
    )


MERGED = {"clusters": 2}
"""For algorithms that merge larger graphs first: as if four ops were many."""
SEARCH = "search"  # of the portfolio: the kernels that no algorithm shares
FIRST = (SEARCH, "etf", "fastt-dpos", "m-sct", "celeritas")
"""What compiles longest and has least in common, begun side by side so that cores do not compile the same kernels."""

Compiled = tuple[str, float, str]  # (name, seconds, why it was passed over)


def warm_up(processes: int = 1) -> Iterator[Compiled]:
    """Plan a tiny problem with every algorithm, in so many processes at once (1: in this one)."""
    names = [*FIRST, *(name for name in registry.names() if name not in FIRST and name != "portfolio")]
    if processes > 1:
        done = set()
        try:
            with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
                for future in as_completed([pool.submit(compile_kernels, name) for name in names]):
                    done.add(future.result()[0])
                    yield future.result()
        except BrokenProcessPool:  # one of them was killed, say for its memory: the others' share is done one by one
            pass
        names = [name for name in names if name not in done]
    yield from map(compile_kernels, [*names, "portfolio"])  # which runs most of the others, so that little is left


def compile_kernels(name: str) -> Compiled:
    """Compile what the algorithm `name`, or the portfolio's search, needs; what is in the cache is loaded."""
    started = time.monotonic()
    skipped = ""
    try:
        if name == SEARCH:
            portfolio.warm_up()  # under a budget it would leave out what it has no time to compile
            one_way = replace(tiny_problem(), links=tiny_problem().links[:1])
            connected_ops(prepare(one_way), np.array([1, 0, 0, 0], dtype=np.int32))
        else:
            options = registry.PlanOptions(budget_seconds=1.0, clock=time.monotonic, max_work=100)
            registry.plan(name, tiny_problem(), options if name == "portfolio" else replace(options, parameters=MERGED))
    except PlannerError as error:
        skipped = str(error)
    return name, time.monotonic() - started, skipped


def main() -> None:
    """Entry point of the daemon's process for it: it yields to everybody else."""
    give_way(NICEST)
    for _ in warm_up():
        pass
    cache.note_warm()


if __name__ == "__main__":
    main()
