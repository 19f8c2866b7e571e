"""What the local search changes: where sets of ops run, which two sets or devices change places, what comes sooner in the order.

A unit is a set of colocation groups that moves as one (an op with its group, a fused cluster, a layer, a tower, a time step); units
of all sizes overlap, sorted into levels. Beside them, sets are drawn afresh: stretches of the topological order that share a
device, and paths along the largest outputs. An arm is one way to choose a set: a level, or one of those; the caller says how often
each is used. It simulates nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, inner
from stepd.core.placement.rng import Rng, below, uniform
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index, Int

DRAWN = 3
"""Arms beside the levels, in this order: stretches, paths, two devices exchanged."""
ON_THE_WAY = 0.5
"""Share of sets that are chosen around what the step's end waited for."""
EXCHANGES = 0.25
ONE_HOME = 0.3
"""Share of moves that move only the part of a unit that is on one device."""
CROWDED = 0.5
"""Where memory does not suffice: share of sets chosen from a device that lacks it, and of moves to the device with most left."""
IN_USE = 0.8
"""Where devices are idle: share of the moves to the least busy or to any device that stay among those in use."""
LOOKS = 16
"""Ops that are drawn in search of one on a device that lacks memory."""


class Units(NamedTuple):
    """Units by level (CSR over levels, then over groups), and the unit of each group at each level."""

    level_pointer: Index  # [levels + 1] level -> units
    unit_pointer: Index  # [units + 1] unit -> groups
    unit_group: Index
    group_unit: Index  # [g * levels]
    position: Index  # [n] place of each op in the topological order


class Changes(NamedTuple):
    """Scratch: which ops were changed and what they had before."""

    op: Index  # [n]
    device: Index  # [n]
    bias: Float  # [n]


class Sight(NamedTuple):
    """What a move may look at of the last accepted step."""

    critical: Index  # [n] ops that the end waited for, the first `size[0]` of them
    size: Index  # [1]
    busy: Float  # [d] seconds
    room: Int  # [d] bytes left at the device's peak, negative where they do not suffice; zeros where memory is not looked at
    short: Index  # [1] how many devices lack memory


@inlined
def arms_of(units: Units) -> int:
    """How many arms there are."""
    return len(units.level_pointer) - 1 + DRAWN


@inlined
def _crowding_op(sight: Sight, placement: Index, rng: Rng) -> int:
    """Now and then, where memory does not suffice: an op on a device that lacks it; else -1."""
    if sight.short[0] > 0 and uniform(rng) < CROWDED:
        for _ in range(LOOKS):
            op = below(rng, len(placement))
            if sight.room[placement[op]] < 0:
                return op
    return -1


@inlined
def _some_op(tables: Tables, sight: Sight, placement: Index, rng: Rng) -> int:
    op = _crowding_op(sight, placement, rng)
    if op >= 0:
        return op
    if sight.size[0] > 0 and uniform(rng) < ON_THE_WAY:
        return int(sight.critical[below(rng, sight.size[0])])
    return below(rng, len(tables.group))


@inlined
def _unit(tables: Tables, units: Units, sight: Sight, placement: Index, level: int, rng: Rng) -> int:
    """A unit of the level: that of an op that lacks memory or that the end waited for, or any."""
    op = _crowding_op(sight, placement, rng)
    if op >= 0:
        return int(units.group_unit[tables.group[op] * (len(units.level_pointer) - 1) + level])
    if sight.size[0] > 0 and uniform(rng) < ON_THE_WAY:
        group = tables.group[sight.critical[below(rng, sight.size[0])]]
        return int(units.group_unit[group * (len(units.level_pointer) - 1) + level])
    first, last = units.level_pointer[level], units.level_pointer[level + 1]
    return int(first + below(rng, last - first))


@inner
def _some_device(tables: Tables, sight: Sight, placement: Index, op: int, rng: Rng) -> int:
    """A device for a set that holds `op`: the one with most memory left, that of a neighbour, the least busy one, or any. Where
    devices are idle, most draws of the last two are among the others: what uses some of many devices is searched there first."""
    if sight.short[0] > 0 and uniform(rng) < CROWDED:
        return int(np.argmax(sight.room))
    kind = uniform(rng)
    if kind < 0.5:
        ins = tables.input_pointer[op + 1] - tables.input_pointer[op]
        outs = tables.output_pointer[op + 1] - tables.output_pointer[op]
        if ins > 0 and (outs == 0 or uniform(rng) < 0.5):
            return int(placement[tables.output_op[tables.input[tables.input_pointer[op] + below(rng, ins)]]])
        if outs > 0:
            output = tables.output_pointer[op] + below(rng, outs)
            readers = tables.reader_pointer[output + 1] - tables.reader_pointer[output]
            return int(placement[tables.reader[tables.reader_pointer[output] + below(rng, readers)]])
    idle = np.argmin(sight.busy)
    if len(sight.busy) > 2 and sight.busy[idle] <= 0.0 and uniform(rng) < IN_USE:
        other = int(placement[below(rng, len(placement))])
        if other != placement[op]:
            return other
    if kind < 0.7:
        return int(idle)
    return below(rng, len(sight.busy))


@inner
def _place_group(
    tables: Tables, allowed: Float, placement: Index, group: int, origin: int, device: int, changes: Changes, changed: int
) -> int:
    """Move the group to `device`, if it can run there and is on `origin` (any: -1); notes what was; returns the count."""
    first = tables.group_pointer[group]
    home = placement[tables.group_op[first]]
    if home == device or (origin >= 0 and home != origin) or allowed[group, device] == np.inf:
        return changed
    for m in range(first, tables.group_pointer[group + 1]):
        op = tables.group_op[m]
        changes.op[changed] = op
        changes.device[changed] = placement[op]
        placement[op] = device
        changed += 1
    return changed


@inner
def _place_unit(
    tables: Tables,
    units: Units,
    allowed: Float,
    placement: Index,
    unit: int,
    origin: int,
    device: int,
    changes: Changes,
    changed: int,
) -> int:
    for k in range(units.unit_pointer[unit], units.unit_pointer[unit + 1]):
        changed = _place_group(tables, allowed, placement, units.unit_group[k], origin, device, changes, changed)
    return changed


@inlined
def _member(tables: Tables, units: Units, unit: int, rng: Rng) -> int:
    """Some op of the unit."""
    first, last = units.unit_pointer[unit], units.unit_pointer[unit + 1]
    group = units.unit_group[first + below(rng, last - first)]
    begin, end = tables.group_pointer[group], tables.group_pointer[group + 1]
    return int(tables.group_op[begin + below(rng, end - begin)])


@inner
def move(tables: Tables, units: Units, allowed: Float, sight: Sight, placement: Index, arm: int, rng: Rng, changes: Changes) -> int:
    """One change of the placement by `arm`; returns how many ops moved."""
    levels = len(units.level_pointer) - 1
    if arm == levels:
        return _move_stretch(tables, units, allowed, sight, placement, rng, changes)
    if arm == levels + 1:
        return _move_path(tables, allowed, sight, placement, rng, changes)
    if arm == levels + 2:
        return _exchange_devices(tables, allowed, placement, rng, changes)
    unit = _unit(tables, units, sight, placement, arm, rng)
    op = _member(tables, units, unit, rng)
    home = placement[op]
    if uniform(rng) < EXCHANGES:
        first, last = units.level_pointer[arm], units.level_pointer[arm + 1]
        other = first + below(rng, last - first)
        there = placement[_member(tables, units, other, rng)]
        if other == unit or there == home:
            return 0
        changed = _place_unit(tables, units, allowed, placement, unit, home, there, changes, 0)
        return _place_unit(tables, units, allowed, placement, other, there, home, changes, changed)
    device = _some_device(tables, sight, placement, op, rng)
    origin = home if uniform(rng) < ONE_HOME else -1
    return _place_unit(tables, units, allowed, placement, unit, origin, device, changes, 0)


@inner
def _move_stretch(tables: Tables, units: Units, allowed: Float, sight: Sight, placement: Index, rng: Rng, changes: Changes) -> int:
    """Of a stretch of the topological order, of any length, what shares the device of an op in it."""
    n = len(placement)
    op = _some_op(tables, sight, placement, rng)
    length = int(2.0 * (n / 4.0 + 1.0) ** uniform(rng))
    first = max(0, units.position[op] - below(rng, length))
    home, device = placement[op], _some_device(tables, sight, placement, op, rng)
    changed = 0
    for at in range(first, min(n, first + length)):
        other = tables.topological[at]
        if placement[other] == home:
            changed = _place_group(tables, allowed, placement, tables.group[other], home, device, changes, changed)
    return changed


@inner
def _move_path(tables: Tables, allowed: Float, sight: Sight, placement: Index, rng: Rng, changes: Changes) -> int:
    """An op and those that follow along its largest output on the same device, some way."""
    op = _some_op(tables, sight, placement, rng)
    home, device = placement[op], _some_device(tables, sight, placement, op, rng)
    left = int(2.0 * 64.0 ** uniform(rng))
    changed = 0
    while op >= 0 and left > 0:
        changed = _place_group(tables, allowed, placement, tables.group[op], home, device, changes, changed)
        left -= 1
        following = -1
        largest = -1
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            readers = tables.reader_pointer[output + 1] - tables.reader_pointer[output]
            reader = tables.reader[tables.reader_pointer[output] + below(rng, readers)]
            if tables.output_bytes[output] > largest and placement[reader] == home:
                largest = tables.output_bytes[output]
                following = reader
        op = following
    return changed


@inner
def _exchange_devices(tables: Tables, allowed: Float, placement: Index, rng: Rng, changes: Changes) -> int:
    """All that is on one device to another one and the other way round, as far as it can run there."""
    d = allowed.shape[1]
    one, other = below(rng, d), below(rng, d)
    changed = 0
    if one != other:
        for group in range(len(tables.group_pointer) - 1):
            home = placement[tables.group_op[tables.group_pointer[group]]]
            if home == one:
                changed = _place_group(tables, allowed, placement, group, one, other, changes, changed)
            elif home == other:
                changed = _place_group(tables, allowed, placement, group, other, one, changes, changed)
    return changed


@inner
def shift(
    tables: Tables, units: Units, sight: Sight, placement: Index, bias: Float, most: float, alone: float, rng: Rng, changes: Changes
) -> int:
    """Bring all ops of a unit, or in a share `alone` of the cases one op without others of its colocation group, forward or back
    in the order by the same seconds, `most` at most; returns how many ops."""
    if uniform(rng) < alone:
        op = _some_op(tables, sight, placement, rng)
        changes.op[0] = op
        changes.bias[0] = bias[op]
        bias[op] += most * uniform(rng) ** 3 * (1.0 if uniform(rng) < 0.5 else -1.0)
        return 1
    unit = _unit(tables, units, sight, placement, below(rng, len(units.level_pointer) - 1), rng)
    by = most * uniform(rng) ** 3 * (1.0 if uniform(rng) < 0.5 else -1.0)
    changed = 0
    for k in range(units.unit_pointer[unit], units.unit_pointer[unit + 1]):
        group = units.unit_group[k]
        for m in range(tables.group_pointer[group], tables.group_pointer[group + 1]):
            op = tables.group_op[m]
            changes.op[changed] = op
            changes.bias[changed] = bias[op]
            bias[op] += by
            changed += 1
    return changed
