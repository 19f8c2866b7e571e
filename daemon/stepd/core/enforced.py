"""What of a strategy's order reaches the runtime: only ops that cost something are held back for others. The rest run as soon as
their inputs are there (TensorFlow's executor runs them at once), and what they make is sent at once: the weights that another
device reads leave at the start of the step, whenever they are needed.

It must not know how an order is enforced, only which ops are left out: those of the hook's `order/edges.py`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepd.core.problem import Float, Index, Problem

COSTLY_SHARE = 0.002
COSTLY_SECONDS = 20e-6
"""Ops that take less than this share of their device's time, or less than so many seconds, are not ordered."""


def unordered(problem: Problem) -> npt.NDArray[np.bool_]:
    """The ops [n] that no order holds back, if work is shared out evenly over the devices that have any."""
    return cheap(problem.seconds)


def cheap(op_seconds: Float) -> npt.NDArray[np.bool_]:
    """As `unordered`, of ops that take `op_seconds` [n, devices]; inf where they cannot run."""
    seconds = np.where(np.isfinite(op_seconds), op_seconds, 0.0)
    cost = seconds.max(axis=1)
    devices = max(int(np.count_nonzero(seconds.sum(axis=0) > 0.0)), 1)
    below: npt.NDArray[np.bool_] = cost < max(COSTLY_SECONDS, COSTLY_SHARE * float(cost.sum()) / devices)
    return below


def as_enforced(problem: Problem, priority: Index) -> Index:
    """Priorities int32 [n] as they will be kept: what is not ordered comes first, both in the order of `priority`."""
    return at_once_first(priority, unordered(problem))


def at_once_first(priority: Index, at_once: npt.NDArray[np.bool_]) -> Index:
    """Priorities int32 [n] in which ops that nothing holds back come first, both in the order of `priority`."""
    ranks = np.empty(len(priority), dtype=np.int32)
    ranks[np.lexsort((priority, ~at_once))] = np.arange(len(priority), dtype=np.int32)
    return ranks
