"""What missing paths of links leave of a placement: the devices that a group may still go to, and a placement made connected.

Where links go one way, or devices are islands, most placements cannot run: an op must be on a device that is reached from wherever
its inputs are made. Choices are narrowed by arcs: a device is left to a group while every neighbour has one left that goes with it.
Planners may ask for whatever devices they like; what comes out of here runs. It knows no times of steps and no planner.
"""

from __future__ import annotations

import numpy as np

from stepd.core.compiled import inner, kernel
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index, Mask


def all_connected(tables: Tables) -> bool:
    """Whether every device is reached from every other one."""
    return bool(np.isfinite(tables.latency).all())


def possible_seconds(prepared: Prepared) -> Float:
    """Seconds of groups [g, d], inf also where some op could not get its inputs or hand on what it makes, wherever these go."""
    if all_connected(prepared.tables):
        return prepared.group_seconds
    can = np.isfinite(prepared.group_seconds)
    if not narrowed(prepared.tables, np.isfinite(prepared.tables.latency), can):
        return prepared.group_seconds
    return np.where(can, prepared.group_seconds, np.inf)


def connected(prepared: Prepared, home: Index) -> Index:
    """`home` int32 [g], the device of each group, or, where no path of links connects all ops so, choices like it that run: groups
    with the most to do stay where they are, others follow as they must. As it is where that fails, too."""
    tables = prepared.tables
    if all_connected(tables) or runs(tables, home[tables.group]):
        return home
    reaches, can = np.isfinite(tables.latency), np.isfinite(prepared.group_seconds)
    if not narrowed(tables, reaches, can):
        return home
    heaviest = np.argsort(-prepared.group_seconds.min(axis=1), kind="stable").astype(np.int32)
    first = tables.group[tables.topological]
    in_turn = first[np.sort(np.unique(first, return_index=True)[1])]
    by_speed = np.argsort(prepared.group_seconds.sum(axis=0), kind="stable")  # those that run everything come first, and never fail
    for wish in (home, *(np.full_like(home, device) for device in by_speed)):
        for order in (heaviest, in_turn, in_turn[::-1].copy()):
            found = settled(tables, prepared.group_seconds, reaches, can.copy(), wish, order)
            if found[0] >= 0:
                return found
    return home


def connected_ops(prepared: Prepared, placement: Index) -> Index:
    """As `connected`, from and to the devices of ops int32 [n]."""
    tables = prepared.tables
    if all_connected(tables) or runs(tables, placement):
        return placement
    return connected(prepared, placement[tables.group_op[tables.group_pointer[:-1]]].astype(np.int32))[tables.group]


def runs(tables: Tables, placement: Index) -> bool:
    """Whether a path of links leads to every reader from where its input is made. placement: [n]."""
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    return bool(np.isfinite(tables.latency[placement[tables.output_op[output]], placement[tables.reader]]).all())


@kernel
def settled(tables: Tables, seconds: Float, reaches: Mask, can: Mask, wish: Index, order: Index) -> Index:
    """A device for each group [g], each in `order` on the one that it wishes for while that is left, else on the fastest that is;
    -1 for all when nothing is left to one. can: [g, d], as `narrowed` leaves it; changed on the way."""
    groups, d = can.shape
    device = np.full(groups, -1, dtype=np.int32)
    stack, waiting = np.empty(groups, dtype=np.int32), np.zeros(groups, dtype=np.bool_)
    for group in order:
        best = wish[group] if can[group, wish[group]] else _fastest(seconds, can, group)
        shrinks = False
        for other in range(d):
            if other != best and can[group, other]:
                can[group, other] = False
                shrinks = True
        stack[0] = group
        if shrinks and not _narrow(tables, reaches, can, stack, waiting, 1):
            return device
    for group in range(groups):
        for other in range(d):
            if can[group, other]:
                device[group] = other
    return device


@kernel
def narrowed(tables: Tables, reaches: Mask, can: Mask) -> bool:
    """Take from `can` [g, d] what no choice of the neighbours goes with; False as soon as nothing is left to a group.
    reaches: [d, d], from a device to another one."""
    groups = len(can)
    stack, waiting = np.empty(groups, dtype=np.int32), np.ones(groups, dtype=np.bool_)
    for group in range(groups):
        stack[group] = group
    return bool(_narrow(tables, reaches, can, stack, waiting, groups))


@inner
def _fastest(seconds: Float, can: Mask, group: int) -> int:
    """The device that runs the group fastest among those that are left to it."""
    best = -1
    for device in range(can.shape[1]):
        if can[group, device] and (best < 0 or seconds[group, device] < seconds[group, best]):
            best = device
    return best


@inner
def _narrow(tables: Tables, reaches: Mask, can: Mask, stack: Index, waiting: Mask, count: int) -> bool:
    """As `narrowed`, from the first `count` groups on the stack, whose choices are fewer than their neighbours know."""
    while count > 0:
        count -= 1
        group = stack[count]
        waiting[group] = False
        for m in range(tables.group_pointer[group], tables.group_pointer[group + 1]):
            op = tables.group_op[m]
            for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
                for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                    count = _keep(reaches, can, group, tables.group[tables.reader[k]], True, stack, waiting, count)
                    if count < 0:
                        return False
            for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
                producer = tables.output_op[tables.input[k]]
                count = _keep(reaches, can, group, tables.group[producer], False, stack, waiting, count)
                if count < 0:
                    return False
    return True


@inner
def _keep(reaches: Mask, can: Mask, group: int, other: int, down: bool, stack: Index, waiting: Mask, count: int) -> int:
    """Leave to `other` what goes with some choice of `group`, which it reads (down) or which reads it; when that is less than
    before, `other` goes on the stack. How many are on it then, -1 when nothing is left to `other`."""
    less, left = False, other == group
    for there in range(can.shape[1]):
        if other == group or not can[other, there]:
            continue
        goes = False
        for here in range(can.shape[1]):
            goes = goes or (can[group, here] and (reaches[here, there] if down else reaches[there, here]))
        can[other, there] = goes
        less, left = less or not goes, left or goes
    if not left:
        return -1
    if less and not waiting[other]:
        waiting[other] = True
        stack[count] = other
        count += 1
    return count
