"""What ops cost whole and in parts, where steps have shown both.

The parts of an op rarely take together what the whole does: a product whose large weight every part reads anew takes nearly all of
its time again. But in a step in parts all devices work at once, and whatever slows them down slows every op. So an op's parts are
compared with its whole as other ops' are: by how much more dearly than usual it is split on that axis. It knows no splits but
their axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from stepd.core.cost.computation import ComputationModel, estimate_seconds
from stepd.core.cost.observation import as_part, of_part
from stepd.core.problem import Float


@dataclass(frozen=True, eq=False)
class OpCosts:
    """`seconds`: float64 [n, d], of whole ops. `dearer`: by (op, axis), the time of all parts over the whole's, where known."""

    seconds: Float
    dearer: Mapping[tuple[str, str], float] = field(default_factory=dict)


def op_costs(
    model: ComputationModel, ops: Sequence[str], types: Sequence[str], devices: Sequence[tuple[str, str]], batch: int
) -> OpCosts:
    """As `estimate_seconds`, with what parts have shown: of an op that never ran whole they say what it takes."""
    number = {op: k for k, op in enumerate(ops)}
    seen = sorted(part for name in model.names() if (part := of_part(name)) is not None and part[0] in number)
    if not seen:
        return OpCosts(estimate_seconds(model, ops, types, devices, batch))
    rows = np.array([number[op] for op, _ in seen])
    names = [*ops, *(as_part(op, axis) for op, axis in seen)]
    both = estimate_seconds(model, names, [*types, *(types[k] for k in rows)], devices, batch)
    whole, parts = both[: len(ops)], both[len(ops) :]
    total, together = whole[rows].sum(axis=1), parts.sum(axis=1)
    compared = (total > 0) & (together > 0)
    ratio = together[compared] / total[compared]
    usual = _median(ratio, total[compared]) if compared.any() else 1.0
    seconds = whole.copy()
    # Half of what is usual goes to either side, so that whole ops and parts meet between the two kinds of steps.
    seconds[rows[compared]] = whole[rows[compared]] * np.sqrt(usual)
    for k in np.flatnonzero((total == 0) & (together > 0)):
        seconds[rows[k]] = np.maximum(seconds[rows[k]], parts[k] / np.sqrt(usual))
    dearer = {seen[k]: float(r / usual) for k, r in zip(np.flatnonzero(compared), ratio, strict=True)}
    return OpCosts(seconds, dearer)


def _median(values: Float, weights: Float) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(reached, reached[-1] / 2)])
