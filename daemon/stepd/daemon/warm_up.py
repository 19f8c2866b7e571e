"""Compile the planners' kernels before they are needed: `stepd warm-up`, at installation or when an image is built.

Runs in this process, which ends afterwards; kernels land where planner processes will look for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from stepd.core.errors import PlannerError
from stepd.core.placement import registry
from stepd.core.portfolio import planner as portfolio
from stepd.core.problem import Device, Link, Problem


def tiny_problem() -> Problem:
    """Two chains of two ops on two devices."""
    pairs = [(0, 1), (2, 3)]
    return Problem(
        name="warm-up",
        devices=(Device("a", "CPU", 1 << 30), Device("b", "CPU", 1 << 30)),
        links=(Link(0, 1, 1e9, 1e-4), Link(1, 0, 1e9, 1e-4)),
        op_names=("a", "b", "c", "d"),
        op_types=("MatMul",) * 4,
        seconds=np.full((4, 2), 0.01),
        resident_bytes=np.zeros(4, dtype=np.int64),
        temp_bytes=np.zeros(4, dtype=np.int64),
        colocation=np.array([-1, -1, 0, 0], dtype=np.int32),
        edge_src=np.array([src for src, _ in pairs], dtype=np.int32),
        edge_dst=np.array([dst for _, dst in pairs], dtype=np.int32),
        edge_output=np.zeros(2, dtype=np.int32),
        edge_bytes=np.full(2, 1000, dtype=np.int64),
    )


def warm_up() -> Iterator[tuple[str, float, str]]:
    """Plan a tiny problem with every algorithm: (name, seconds, why it was passed over)."""
    for name in registry.names():
        started = time.monotonic()
        skipped = ""
        try:
            if name == "portfolio":
                portfolio.warm_up()  # under a budget it would leave out what it has no time to compile
            registry.plan(name, tiny_problem(), registry.PlanOptions(budget_seconds=1.0, clock=time.monotonic, max_work=100))
        except PlannerError as error:
            skipped = str(error)
        yield name, time.monotonic() - started, skipped
