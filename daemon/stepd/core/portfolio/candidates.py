"""Placements that a human expert would try, from labellings of the graph: contiguous cuts, parts in turn, parts by load.

Also what the user's code names, and every single device. A candidate is a placement of groups; its order is somebody else's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from stepd.core.placement.sharing_out import Shares, least_first
from stepd.core.portfolio.labels import Labelling, op_cost
from stepd.core.portfolio.pool import Candidate
from stepd.core.prepared import SLOW, Prepared, device_speeds
from stepd.core.problem import Float, Index, Problem
from stepd.core.reach import connected
from stepd.core.strategy import Strategy


def single_devices(prepared: Prepared) -> Iterator[tuple[str, Index]]:
    """Everything on one device, for each that differs from those before it; what cannot run there goes to its best device."""
    seen = set()
    for device in range(prepared.group_seconds.shape[1]):
        kind = prepared.group_seconds[:, device].tobytes(), int(prepared.tables.memory[device])
        everything = bool(np.isfinite(prepared.group_seconds[:, device]).all())
        if kind in seen and everything:
            continue
        seen.add(kind)
        wish = np.full(prepared.n_groups, device, dtype=np.int32)
        yield f"single device {device}", allowed_near(prepared, wish)


def to_begin_with(problem: Problem, prepared: Prepared, natural: Index, starts: Sequence[Strategy], named: bool) -> list[Candidate]:
    """The single devices in the order `natural`, int32 [n], then `starts`, then, if `named`, the user's devices."""
    group = prepared.tables.group
    found = [Candidate(origin, groups[group], natural) for origin, groups in single_devices(prepared)]
    for start in starts:
        found.append(Candidate(str(start.planner.get("algorithm", "start")), start.placement.copy(), start.priority.copy()))
    if named:
        found += [Candidate(origin, groups[group], natural) for origin, groups in user_placement(problem, prepared)]
    return found


def allowed_near(prepared: Prepared, wish: Index) -> Index:
    """`wish` int32 [g], with groups that cannot run where they should on their fastest device instead, or, where links are missing,
    on one that is reached."""
    groups = np.arange(prepared.n_groups)
    best = np.argmin(prepared.group_seconds, axis=1)
    fits = (wish >= 0) & np.isfinite(prepared.group_seconds[groups, np.maximum(wish, 0)])
    return connected(prepared, np.where(fits, wish, best).astype(np.int32))


def user_placement(problem: Problem, prepared: Prepared) -> Iterator[tuple[str, Index]]:
    """The devices that the user's code names; unnamed groups on the first device."""
    if problem.user_devices is None or not (problem.user_devices >= 0).any():
        return
    wish = np.zeros(prepared.n_groups, dtype=np.int32)
    named = np.flatnonzero(problem.user_devices >= 0)[::-1]
    wish[prepared.tables.group[named]] = problem.user_devices[named]
    yield "the user's devices", allowed_near(prepared, wish)


def group_labels(prepared: Prepared, label: Index) -> Index:
    """The label of each group: that of its most expensive op. int32 [g]."""
    order = np.lexsort((op_cost(prepared), prepared.tables.group))
    last = np.flatnonzero(np.r_[np.diff(prepared.tables.group[order]) > 0, True])
    return label[order[last]]


def expert_placements(prepared: Prepared, labelling: Labelling) -> Iterator[tuple[str, Index]]:
    """Ways to hand the parts of a labelling to 2..d devices, the most often good first, over fast devices."""
    label = group_labels(prepared, labelling.label)
    d = prepared.group_seconds.shape[1]
    cost = _sums(label, prepared.group_seconds.min(axis=1), labelling.count)
    resident = _sums(label, prepared.group_resident.astype(np.float64), labelling.count)
    speeds = device_speeds(prepared)
    fastest = np.argsort(-speeds, kind="stable").astype(np.int32)
    lines = [fastest, neighbours(prepared, int(fastest[0]))]
    quick = int((speeds >= SLOW * speeds.max()).sum())
    choices = []
    for used, line in product(dict.fromkeys([quick, 2, max(2, quick // 2), d]), range(len(lines))):
        devices = lines[line][:used]
        if 2 <= used <= d and not (line > 0 and np.array_equal(devices, fastest[:used])):
            along = f"{used} neighbours" if line > 0 else f"{used}"
            choices.append((along, devices, speeds[devices] / speeds[devices].sum()))
    for along, devices, share in choices:
        if labelling.count >= len(devices):
            turns = devices[np.arange(labelling.count) % len(devices)]
            yield f"{labelling.kind}: in turn over {along}", _placed(prepared, label, turns)
        yield f"{labelling.kind}: {along} cuts by time", _placed(prepared, label, devices[_cut(cost, share)])
    for along, devices, share in choices:
        if resident.sum() > 0:
            memory: Float = prepared.tables.memory[devices].astype(np.float64)
            by_memory = devices[_cut(resident, memory / max(float(memory.sum()), 1.0))]
            yield f"{labelling.kind}: {along} cuts by memory", _placed(prepared, label, by_memory)
        if labelling.count >= len(devices):
            yield f"{labelling.kind}: by load over {along}", _placed(prepared, label, devices[_by_load(cost, share)])


def by_load(prepared: Prepared, clusters: Index) -> Index:
    """Clusters int32 [g], numbered from 0, over all devices that can run most of the work, each its share. int32 [g]."""
    work = prepared.group_seconds.min(axis=1)
    runs = np.isfinite(prepared.group_seconds).T @ work
    devices = np.flatnonzero(2.0 * runs >= work.sum()).astype(np.int32)
    if len(devices) == 0:
        return allowed_near(prepared, np.full(prepared.n_groups, -1, dtype=np.int32))
    speeds = device_speeds(prepared)[devices]
    cost = _sums(clusters, work, int(clusters.max()) + 1)
    return _placed(prepared, clusters, devices[_by_load(cost, speeds / speeds.sum())])


def neighbours(prepared: Prepared, first: int) -> Index:
    """The devices, each next to the one that it is reached fastest from, both ways, with an output of mean size. int32 [d]."""
    tables = prepared.tables
    size = float(tables.output_bytes.mean()) if len(tables.output_bytes) else 0.0
    reach = tables.latency + size / tables.bandwidth
    reach = reach + reach.T
    line = [first]
    while len(line) < len(reach):
        left = [k for k in range(len(reach)) if k not in line]
        line.append(min(left, key=lambda k: float(reach[line[-1], k])))
    return np.array(line, dtype=np.int32)


def _sums(label: Index, values: Float, count: int) -> Float:
    return np.bincount(label, weights=values, minlength=count).astype(np.float64)


def _placed(prepared: Prepared, label: Index, device_of_part: Index) -> Index:
    return allowed_near(prepared, device_of_part[label].astype(np.int32))


def _cut(cost: Float, share: Float) -> Index:
    """Contiguous parts to devices in order, each device getting about its share."""
    middle = (np.cumsum(cost) - 0.5 * cost) / max(float(cost.sum()), 1e-30)
    bounds = np.cumsum(share)[:-1]
    return np.searchsorted(bounds, middle, side="right").astype(np.int32)


def _by_load(cost: Float, share: Float) -> Index:
    """Longest part first, to the device that would be done first."""
    return least_first(Shares(cost[:, None] / share, np.zeros(len(share))))
