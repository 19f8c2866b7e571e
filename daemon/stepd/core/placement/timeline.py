"""Idle time of devices and links: where the insertion of HEFT and DPOS looks for room.

A resource's timeline is its list of idle gaps in order of time, the last one open-ended; it knows no ops, no graph and no
memory. Timelines of several resources are rows of two arrays. Only the newest `gaps` (columns) of a row are kept: a schedule is
built roughly in order of time, so the oldest gaps are the ones that nothing fits any more; dropping them bounds the time and the
memory of a pass. A gap that is shorter than `tiny` is dropped at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, kernel, lean
from stepd.core.problem import Float, Index, Int


class Timelines(NamedTuple):
    """starts, ends: float64 [resources, gaps], seconds; used: int64 [resources], gaps in use; tiny: seconds."""

    starts: Float
    ends: Float
    used: Int
    tiny: float


@kernel
def new_timelines(resources: int, gaps: int, tiny: float) -> Timelines:
    """Timelines that are idle from 0 on."""
    starts = np.empty((resources, gaps))
    ends = np.empty((resources, gaps))
    count = np.ones(resources, dtype=np.int64)
    for row in range(resources):
        starts[row, 0] = 0.0
        ends[row, 0] = np.inf
    return Timelines(starts, ends, count, tiny)


@inlined
def first_gap(lines: Timelines, row: int, ready: float, duration: float) -> int:
    """Index of the first gap of `row` that holds `duration` from `ready` on; there always is one."""
    last: int = lines.used[row] - 1
    if ready >= lines.starts[row, last]:
        return last
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        if lines.ends[row, middle] >= ready + duration:
            high = middle
        else:
            low = middle + 1
    while max(lines.starts[row, low], ready) + duration > lines.ends[row, low]:
        low += 1
    return low


@lean
def earliest(lines: Timelines, row: int, ready: float, duration: float, insertion: bool) -> float:
    """The earliest start of `duration` on `row` from `ready` on: in a gap, or only at the end without insertion.

    What takes no time needs no gap: it slips in between (the simulator may make it wait for the op that is running).
    """
    if duration <= 0.0:
        return ready
    gap = first_gap(lines, row, ready, duration) if insertion else lines.used[row] - 1
    begin: float = lines.starts[row, gap]
    return max(begin, ready)


@lean
def earliest_on_all(lines: Timelines, rows: Index, ready: float, duration: float) -> float:
    """The earliest start from `ready` on at which all `rows` are idle for `duration` (multi-hop transfers hold all links)."""
    start = ready
    if len(rows) == 1:
        return earliest(lines, rows[0], ready, duration, True)
    moved = True
    while moved:
        moved = False
        for row in rows:
            later = earliest(lines, row, start, duration, True)
            if later > start:
                start = later
                moved = True
    return start


@lean
def take(lines: Timelines, row: int, start: float, duration: float) -> None:
    """Occupy [start, start + duration) of `row`, which must lie within one gap. Zero durations take nothing."""
    if duration <= 0.0:
        return
    gap = first_gap(lines, row, start, duration)
    end = start + duration
    gap_start, gap_end = lines.starts[row, gap], lines.ends[row, gap]
    keep_left = start - gap_start > lines.tiny
    keep_right = gap_end - end > lines.tiny
    if keep_left and keep_right:
        _split(lines, row, gap, start, end)
    elif keep_left:
        lines.ends[row, gap] = start
    elif keep_right:
        lines.starts[row, gap] = end
    else:
        _shift(lines, row, gap, gap + 1)
        lines.used[row] -= 1


@inlined
def _split(lines: Timelines, row: int, gap: int, start: float, end: float) -> None:
    count = lines.used[row]
    if count == lines.starts.shape[1]:  # full: forget the oldest gap
        if gap == 0:
            lines.starts[row, 0] = end
            return
        _shift(lines, row, 0, 1)
        gap -= 1
        count -= 1
    for i in range(count, gap + 1, -1):
        lines.starts[row, i] = lines.starts[row, i - 1]
        lines.ends[row, i] = lines.ends[row, i - 1]
    lines.ends[row, gap + 1] = lines.ends[row, gap]
    lines.starts[row, gap + 1] = end
    lines.ends[row, gap] = start
    lines.used[row] = count + 1


@inlined
def _shift(lines: Timelines, row: int, target: int, source: int) -> None:
    """Move the gaps from `source` on to `target` < source."""
    for i in range(source, lines.used[row]):
        lines.starts[row, target + i - source] = lines.starts[row, i]
        lines.ends[row, target + i - source] = lines.ends[row, i]
