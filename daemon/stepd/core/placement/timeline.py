"""Idle time of devices and links: where the insertion of HEFT and DPOS looks for room.

A resource's timeline is its list of idle gaps in order of time, the last one open-ended; it knows no ops, no graph and no
memory. Timelines of several resources are rows of two arrays. Only the newest `gaps` of a row are kept: a schedule is built roughly
in order of time, so the oldest gaps are the ones that nothing fits any more; dropping them bounds the time and the memory of
a pass. A gap that is shorter than `tiny` is dropped at once.

Who looks for room on a row mostly asks for about the time that was asked for last, while the end of the row may be hundreds of gaps
away: each row remembers where a search ended, and the next begins there. That changes no answer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, kernel, lean
from stepd.core.problem import Float, Index, Int


class Timelines(NamedTuple):
    """The gaps of row r are starts[r, k], ends[r, k] for first[r] <= k <= last[r]."""

    starts: Float  # [resources, 2 * gaps] seconds
    ends: Float
    first: Int  # [resources]
    last: Int  # [resources]
    near: Int  # [resources] where the last search ended: a hint, perhaps outside of the row
    tiny: float  # seconds


@kernel
def new_timelines(resources: int, gaps: int, tiny: float) -> Timelines:
    """Timelines that are idle from 0 on."""
    starts = np.empty((resources, 2 * gaps))
    ends = np.empty((resources, 2 * gaps))
    for row in range(resources):
        starts[row, 0] = 0.0
        ends[row, 0] = np.inf
    rows = np.zeros((3, resources), dtype=np.int64)
    return Timelines(starts, ends, rows[0], rows[1], rows[2], tiny)


@inlined
def first_gap(lines: Timelines, row: int, ready: float, duration: float, least: int = 0) -> int:
    """Index of the first gap of `row` that holds `duration` from `ready` on; there always is one. `least`: none before it does."""
    last: int = lines.last[row]
    if ready >= lines.starts[row, last]:
        return last
    first: int = lines.first[row]
    until = ready + duration
    starts, ends = lines.starts[row], lines.ends[row]
    low: int = min(max(lines.near[row], first), last)
    high, step = low, 1
    if ends[low] >= until:
        low -= 1
        while low >= first and ends[low] >= until:
            high = low
            low -= step
            step += step
        low = max(low + 1, first)
    else:
        while ends[high] < until:  # the last one ends never
            low = high + 1
            high = min(high + step, last)
            step += step
    count = high - low
    while count > 0:  # without a branch that the processor would have to guess
        half = (count + 1) >> 1
        low += half if ends[low + half - 1] < until else 0
        count -= half
    lines.near[row] = low
    low = max(low, least)
    while max(starts[low], ready) + duration > ends[low]:
        low += 1
    return low


@inlined
def earliest_here(lines: Timelines, row: int, ready: float, duration: float, insertion: bool) -> float:
    """The earliest start of `duration` on `row` from `ready` on: in a gap, or only at the end without insertion.

    What takes no time needs no gap: it slips in between (the simulator may make it wait for the op that is running).
    """
    if duration <= 0.0:
        return ready
    gap = first_gap(lines, row, ready, duration) if insertion else lines.last[row]
    begin: float = lines.starts[row, gap]
    return max(begin, ready)


@lean
def earliest(lines: Timelines, row: int, ready: float, duration: float, insertion: bool) -> float:
    """`earliest_here`, compiled once for all who ask it seldom."""
    return earliest_here(lines, row, ready, duration, insertion)


@lean
def earliest_on_all(lines: Timelines, rows: Index, ready: float, duration: float) -> float:
    """The earliest start from `ready` on at which all `rows` are idle for `duration` (multi-hop transfers hold all links)."""
    start = ready
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
    if duration > 0.0:
        _occupy(lines, row, first_gap(lines, row, start, duration), start, start + duration)


@lean
def book(lines: Timelines, row: int, ready: float, duration: float, insertion: bool) -> float:
    """`earliest`, and that time taken: one search for a gap instead of two."""
    if duration <= 0.0:
        return ready
    gap = first_gap(lines, row, ready, duration) if insertion else lines.last[row]
    return book_gap(lines, row, gap, ready, duration)


@inlined
def book_gap(lines: Timelines, row: int, gap: int, ready: float, duration: float) -> float:
    """As `book` where the gap is known."""
    start: float = max(lines.starts[row, gap], ready)
    _occupy(lines, row, gap, start, start + duration)
    return start


@inlined
def _occupy(lines: Timelines, row: int, gap: int, start: float, end: float) -> None:
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
        for i in range(gap, lines.last[row]):
            lines.starts[row, i] = lines.starts[row, i + 1]
            lines.ends[row, i] = lines.ends[row, i + 1]
        lines.last[row] -= 1


@inlined
def _split(lines: Timelines, row: int, gap: int, start: float, end: float) -> None:
    columns = lines.starts.shape[1]
    if 2 * (lines.last[row] - lines.first[row] + 1) == columns:  # full: forget the oldest gap
        if gap == lines.first[row]:
            lines.starts[row, gap] = end
            return
        lines.first[row] += 1
    if lines.last[row] + 1 == columns:  # no column left: begin anew from the first
        base = lines.first[row]
        for i in range(base, columns):
            lines.starts[row, i - base] = lines.starts[row, i]
            lines.ends[row, i - base] = lines.ends[row, i]
        lines.first[row] = 0
        lines.last[row] -= base
        gap -= base
    starts, ends = lines.starts[row, gap + 1 : lines.last[row] + 2], lines.ends[row, gap + 1 : lines.last[row] + 2]
    for i in range(len(starts) - 1, 0, -1):  # one array after the other, from 0 on: so it is compiled to copies of several at once
        starts[i] = starts[i - 1]
    for i in range(len(ends) - 1, 0, -1):
        ends[i] = ends[i - 1]
    lines.ends[row, gap + 1] = lines.ends[row, gap]
    lines.starts[row, gap + 1] = end
    lines.ends[row, gap] = start
    lines.last[row] += 1
