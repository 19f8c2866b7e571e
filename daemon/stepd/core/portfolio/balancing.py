"""Exchanges that even out what two devices have to do, where a step takes hardly longer than its busiest device works.

What is left to gain there is smaller than what nearly all moves change, so that moves drawn at random rarely find it. Here the
exchanges are looked for that leave the least on the busier of two devices, and simulated, the most promising first. It draws
nothing at random and knows no chains.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stepd.core.portfolio.points import Point, evaluate
from stepd.core.portfolio.pool import Entry, Pool
from stepd.core.problem import Float, Index

FULL = 1.01
"""How much longer than its busiest device works a step may take to be worth it."""
LARGEST = 96
"""Groups of a device that are looked at, the shortest ones."""
TRIED = 48
"""Exchanges simulated before the search for a better one is given up."""
IN_A_ROW = 12
"""Exchanges made, one after the other."""


def balanced(pool: Pool, entry: Entry) -> Entry:
    """`entry`, or what exchanges make of it."""
    for _ in range(IN_A_ROW):
        better = _exchanged(pool, entry)
        if better is None:
            break
        entry = Entry(better, entry.weight, entry.origin)
    return entry


def _exchanged(pool: Pool, entry: Entry) -> Point | None:
    """The first exchange that makes the step shorter, None when there is none among those tried."""
    tables, point = pool.prepared.tables, entry.point
    home = np.empty(pool.prepared.n_groups, dtype=np.int32)
    home[tables.group] = point.placement
    for wish in _exchanges(pool.prepared.group_seconds, home, point.seconds):
        placement = wish[tables.group]
        found = evaluate(
            tables, placement, point.bias, point.base, entry.weight, pool.tail, pool.penalty, pool.track, point.seconds
        )
        if found.overflow == 0.0 and found.seconds < point.seconds:
            return found
    return None


def _exchanges(seconds: Float, home: Index, step: float) -> Iterator[Index]:
    """Device of each group after a move or an exchange between the busiest device and another one, the most even first.

    seconds: [g, d] of groups; home: [g]; step: seconds of the step as it is.
    """
    devices = seconds.shape[1]
    load = np.bincount(home, weights=seconds[np.arange(len(home)), home], minlength=devices)
    busiest = int(np.argmax(load))
    if step > FULL * load[busiest]:
        return
    mine = _short(seconds, home, busiest)
    found: list[tuple[float, int, int, int]] = []  # (seconds of the busier of the two afterwards, group, group or -1, device)
    for device in range(devices):
        if device == busiest:
            continue
        theirs = _short(seconds, home, device)
        none = np.zeros(1)
        back_here = np.concatenate([seconds[theirs, busiest], none])  # the last column: nothing comes back
        from_there = np.concatenate([seconds[theirs, device], none])
        here = load[busiest] - seconds[mine, busiest][:, None] + back_here[None, :]
        there = load[device] + seconds[mine, device][:, None] - from_there[None, :]
        after = np.maximum(here, there)
        for at in np.argsort(after, axis=None, kind="stable")[:TRIED]:
            row, column = divmod(int(at), after.shape[1])
            if after[row, column] < load[busiest]:
                found.append((float(after[row, column]), int(mine[row]), int([*theirs, -1][column]), device))
    for _, here_group, there_group, device in sorted(found)[:TRIED]:
        wish = home.copy()
        wish[here_group] = device
        if there_group >= 0:
            wish[there_group] = busiest
        yield wish


def _short(seconds: Float, home: Index, device: int) -> Index:
    """Groups on `device` that take time there, the shortest first."""
    groups = np.flatnonzero((home == device) & (seconds[:, device] > 0.0))
    return groups[np.argsort(seconds[groups, device], kind="stable")][:LARGEST].astype(np.int32)
