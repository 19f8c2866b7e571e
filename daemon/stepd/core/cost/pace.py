"""What op times are at a device's present pace, from samples of steps that ran at different paces.

A device does not always work at one pace: clocks change, a neighbour comes and goes, the other devices of the machine start to
work when a strategy is switched. Ops that run there in every step show the pace of each; samples of ops that have moved away
since are brought to the present one. Otherwise an op would seem faster where it ran long ago than where it runs now, and a
planner would send it back.

Pure arithmetic: knows no ops, no devices and no models.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stepd.core.problem import Float

RECENT = 5
"""Steps that the present pace is the median of."""

ROUNDS = 3
FEW = 1.0
"""Pace is believed as far as it rests on several ops: m ops of equal weight count as m / (m + FEW) of what they show."""

FLOOR = 1e-3
"""Relative deviation of a sample that is assumed at least."""


def at_present_pace(values: Float, steps: npt.NDArray[np.int32]) -> tuple[Float, float]:
    """(float64 [n] seconds of each op at the pace of the last steps, relative standard deviation of one sample).

    values: float64 [n, width], seconds, nan where there is none; steps: int32 [n, width], the step of each sample. The model is
    value = seconds[op] * pace[step], fitted by medians in turn; a step's pace is the median over its ops, weighted by their time.
    """
    known = ~np.isnan(values)
    seconds: Float = _medians(values)
    rows, columns = np.nonzero(known)
    stamps, index = np.unique(steps[rows, columns], return_inverse=True)
    seen = values[rows, columns]
    pace = np.ones(len(stamps))
    corrected = values.copy()
    for _ in range(ROUNDS):
        pace = _paces(seen, seconds[rows], index, len(stamps))
        corrected[rows, columns] = seen / pace[index]
        seconds = _medians(corrected)
    deviation = np.abs(corrected - seconds[:, None])[rows, columns] / np.maximum(seconds[rows], 1e-12)
    spread = 1.4826 * _weighted_median(deviation, seconds[rows])
    present = float(np.median(pace[-RECENT:]))
    return seconds * present, max(spread, FLOOR)


def _paces(seen: Float, usual: Float, index: npt.NDArray[np.intp], n: int) -> Float:
    """float64 [n]: for each step the weighted median of seen over usual, drawn to 1 where few ops speak."""
    pace = np.ones(n)
    order = np.argsort(index, kind="stable")
    bounds = np.searchsorted(index[order], np.arange(n + 1))
    for k in range(n):
        rows = order[bounds[k] : bounds[k + 1]]
        rows = rows[usual[rows] > 0]
        if not len(rows):
            continue
        weight = usual[rows]
        alike = weight.sum() ** 2 / (weight**2).sum()
        ratio = max(_weighted_median(seen[rows] / weight, weight), 1e-6)
        pace[k] = np.exp(np.log(ratio) * alike / (alike + FEW))
    return pace


def _medians(values: Float) -> Float:
    """np.nanmedian(values, axis=1), several times as fast: sorting puts nan last."""
    ordered = np.sort(values, axis=1)
    known = np.maximum(np.count_nonzero(~np.isnan(values), axis=1), 1)
    rows = np.arange(len(values))
    middle: Float = (ordered[rows, (known - 1) // 2] + ordered[rows, known // 2]) / 2.0
    return middle


def _weighted_median(values: Float, weights: Float) -> float:
    if not len(values) or weights.sum() <= 0:
        return 0.0
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(total, total[-1] / 2)])
