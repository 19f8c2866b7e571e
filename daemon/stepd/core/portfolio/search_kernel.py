"""Local search on the simulator: simulated annealing over where units run and in which order, as one kernel.

A unit is a set of colocation groups that moves as one (an op with its group, a fused cluster, a layer, a tower, a time step); units
of all sizes overlap. The order of ops is always the same function of a point: upward ranks with the communication of the
placement (HEFT's, under a fixed placement), or a given order, plus a bias per op that moves change too. A step is simulated only as
far as it can still be accepted.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, inner, kernel
from stepd.core.placement.rng import Rng, below, uniform
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index
from stepd.core.simulation_kernel import State, new_state, run_step


class Units(NamedTuple):
    """Units by level (CSR over levels, then over groups), and the units of each group."""

    level_pointer: Index  # [levels + 1] level -> units
    unit_pointer: Index  # [units + 1] unit -> groups
    unit_group: Index
    group_pointer: Index  # [g + 1] group -> units that hold it
    group_unit: Index


class Point(NamedTuple):
    """One strategy as the search sees it. cost: seconds, plus a penalty where memory does not suffice."""

    placement: Index  # [n]
    priority: Index  # [n]
    bias: Float  # [n] seconds by which an op is moved forward in the order
    base: Float  # [n] the given order as seconds (largest first); empty: upward ranks of the placement
    cost: float
    seconds: float
    overflow: float  # share of the devices' memory that is missing


@inlined
def upward_ranks(tables: Tables, placement: Index, weight: float, rank: Float) -> None:
    """Longest way to the end of the step, transfers weighted; fills rank [n] seconds."""
    n = len(rank)
    for at in range(n - 1, -1, -1):
        op = tables.topological[at]
        home = placement[op]
        longest = 0.0
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                reader = tables.reader[k]
                way = rank[reader]
                there = placement[reader]
                if there != home and weight > 0.0:
                    way += weight * (tables.latency[home, there] + tables.output_bytes[output] / tables.bandwidth[home, there])
                longest = max(longest, way)
        rank[op] = longest + tables.seconds[op, home]


@kernel
def shortest_tails(tables: Tables) -> Float:
    """Seconds [n] from an op's start to the end of the step on the best devices and without transfers: what no step beats."""
    n, d = tables.seconds.shape
    tail = np.zeros(n)
    for at in range(n - 1, -1, -1):
        op = tables.topological[at]
        best = np.inf
        for device in range(d):
            best = min(best, tables.seconds[op, device])
        longest = 0.0
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                longest = max(longest, tail[tables.reader[k]])
        tail[op] = best + longest
    return tail


@kernel
def order_by(tables: Tables, keys: Float) -> Index:
    """Priorities [n]: the largest key first, among equals producers first."""
    n = len(keys)
    sorted_keys = np.empty(n)
    for at in range(n):
        sorted_keys[at] = -keys[tables.topological[at]]
    by_key = np.argsort(sorted_keys, kind="mergesort")
    priority = np.empty(n, dtype=np.int32)
    for at in range(n):
        priority[tables.topological[by_key[at]]] = at
    return priority


@inlined
def overflow_of(tables: Tables, state: State) -> float:
    """How much of the devices' memory is missing, as a share of each, summed."""
    missing = 0.0
    for device in range(len(tables.memory)):
        if state.peak[device] > tables.memory[device]:
            missing += (state.peak[device] - tables.memory[device]) / max(1.0, float(tables.memory[device]))
    return missing


@inlined
def penalised(seconds: float, overflow: float, penalty: float) -> float:
    """Seconds of a step, `penalty` seconds and more where memory does not suffice."""
    return seconds + (penalty * (1.0 + 10.0 * overflow) if overflow > 0.0 else 0.0)


@kernel
def evaluate(
    tables: Tables,
    placement: Index,
    bias: Float,
    base: Float,
    weight: float,
    tail: Float,
    penalty: float,
    track: bool,
    limit: float,
) -> Point:
    """The point of a placement and an order rule; its cost is inf when the step takes longer than `limit`."""
    state = new_state(tables)
    keys = np.empty(len(placement))
    priority = _order(tables, placement, bias, base, weight, keys)
    seconds = run_step(tables, state, placement, priority, tail, limit, track)
    overflow = overflow_of(tables, state)
    return Point(placement, priority, bias, base, penalised(seconds, overflow, penalty), seconds, overflow)


@kernel
def _order(tables: Tables, placement: Index, bias: Float, base: Float, weight: float, keys: Float) -> Index:
    if len(base) > 0:
        keys[:] = base
    else:
        upward_ranks(tables, placement, weight, keys)
    for op in range(len(keys)):
        keys[op] += bias[op]
    return order_by(tables, keys)


@kernel
def anneal(
    tables: Tables,
    units: Units,
    allowed: Float,
    start: Point,
    weight: float,
    tail: Float,
    penalty: float,
    track: bool,
    steps: int,
    heat: float,
    shifts: float,
    rng: Rng,
) -> Point:
    """`steps` moves from `start`; the best point seen. allowed: [g, d] seconds of groups, inf where they cannot run.

    shifts: share of the moves that change the order.
    heat: the temperature at first, as a share of the cost; it falls a hundredfold.
    """
    n = len(start.placement)
    state = new_state(tables)
    placement = start.placement.copy()
    bias = start.bias.copy()
    keys = np.empty(n)
    cost = start.cost
    best = Point(placement.copy(), start.priority.copy(), bias.copy(), start.base, cost, start.seconds, start.overflow)
    priority = best.priority
    seconds = run_step(tables, state, placement, priority, tail, np.inf, track)
    critical = np.empty(n, dtype=np.int32)
    n_critical = critical_ops(tables, state, placement, critical)
    changed_op = np.empty(n, dtype=np.int32)
    changed_device = np.empty(n, dtype=np.int32)
    old_bias = np.empty(n)
    for step in range(steps):
        temperature = cost * heat * 0.01 ** (step / steps)
        limit = cost - temperature * np.log(max(1e-12, uniform(rng)))
        shift = uniform(rng) < shifts
        changed = 0
        if shift:
            changed = _shift_order(tables, units, critical, n_critical, bias, cost, rng, changed_op, old_bias)
        else:
            changed = _move(tables, units, allowed, state, placement, critical, n_critical, rng, changed_op, changed_device)
        if changed == 0:
            continue
        priority = _order(tables, placement, bias, start.base, weight, keys)
        seconds = run_step(tables, state, placement, priority, tail, limit, track)
        overflow = overflow_of(tables, state) if seconds < np.inf else 0.0
        found = penalised(seconds, overflow, penalty)
        if found <= limit:
            cost = found
            n_critical = critical_ops(tables, state, placement, critical)
            if found < best.cost:
                best = Point(placement.copy(), priority.copy(), bias.copy(), start.base, found, seconds, overflow)
        elif shift:
            for k in range(changed - 1, -1, -1):
                bias[changed_op[k]] = old_bias[k]
        else:
            for k in range(changed - 1, -1, -1):
                placement[changed_op[k]] = changed_device[k]
    return best


@inner
def critical_ops(tables: Tables, state: State, placement: Index, critical: Index) -> int:
    """Fill `critical` with ops back from the last one: each waited for an input's producer or for the op before it there."""
    n = len(placement)
    last = 0
    for op in range(n):
        if state.finish[op] > state.finish[last]:
            last = op
    # The op that ended on a device when another one started there: found by a pass over ops in start order would cost a sort;
    # walking inputs only is enough to say what is worth moving.
    count = 0
    op = last
    while True:
        critical[count] = op
        count += 1
        latest = -1
        when = -1.0
        for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            output = tables.input[k]
            producer = tables.output_op[output]
            home, here = placement[producer], placement[op]
            arrives = state.finish[producer]
            if home != here:
                arrives += tables.latency[home, here] + tables.output_bytes[output] / tables.bandwidth[home, here]
            if arrives > when:
                when = arrives
                latest = producer
        if latest < 0 or count >= n:
            return count
        op = latest


@inner
def _some_unit(units: Units, tables: Tables, critical: Index, n_critical: int, rng: Rng) -> int:
    """A unit: half of the time one that holds an op of the critical path, else any of a random level."""
    if n_critical > 0 and uniform(rng) < 0.5:
        group = tables.group[critical[below(rng, n_critical)]]
        first, last = units.group_pointer[group], units.group_pointer[group + 1]
        return int(units.group_unit[first + below(rng, last - first)])
    level = below(rng, len(units.level_pointer) - 1)
    first, last = units.level_pointer[level], units.level_pointer[level + 1]
    return int(first + below(rng, last - first))


@inlined
def _some_device(tables: Tables, units: Units, state: State, placement: Index, unit: int, rng: Rng) -> int:
    """A device for a unit: that of a neighbour, the least busy one, or any."""
    d = tables.seconds.shape[1]
    kind = uniform(rng)
    if kind < 0.5:
        first, last = units.unit_pointer[unit], units.unit_pointer[unit + 1]
        group = units.unit_group[first + below(rng, last - first)]
        op = tables.group_op[
            tables.group_pointer[group] + below(rng, tables.group_pointer[group + 1] - tables.group_pointer[group])
        ]
        ins = tables.input_pointer[op + 1] - tables.input_pointer[op]
        outs = tables.output_pointer[op + 1] - tables.output_pointer[op]
        if ins > 0 and (outs == 0 or uniform(rng) < 0.5):
            return int(placement[tables.output_op[tables.input[tables.input_pointer[op] + below(rng, ins)]]])
        if outs > 0:
            output = tables.output_pointer[op] + below(rng, outs)
            readers = tables.reader_pointer[output + 1] - tables.reader_pointer[output]
            return int(placement[tables.reader[tables.reader_pointer[output] + below(rng, readers)]])
    if kind < 0.7:
        return int(np.argmin(state.busy))
    return below(rng, d)


@inner
def _place_unit(
    tables: Tables,
    units: Units,
    allowed: Float,
    placement: Index,
    unit: int,
    origin: int,
    device: int,
    changed: int,
    changed_op: Index,
    changed_device: Index,
) -> int:
    """Move the unit's groups that are on `origin` (any: -1) to `device`, where they can run; notes what was; returns the count."""
    for k in range(units.unit_pointer[unit], units.unit_pointer[unit + 1]):
        group = units.unit_group[k]
        if allowed[group, device] == np.inf:
            continue
        for m in range(tables.group_pointer[group], tables.group_pointer[group + 1]):
            op = tables.group_op[m]
            if placement[op] != device and (origin < 0 or placement[op] == origin):
                changed_op[changed] = op
                changed_device[changed] = placement[op]
                placement[op] = device
                changed += 1
    return changed


@inner
def _home(tables: Tables, units: Units, placement: Index, unit: int, rng: Rng) -> int:
    first, last = units.unit_pointer[unit], units.unit_pointer[unit + 1]
    group = units.unit_group[first + below(rng, last - first)]
    return int(placement[tables.group_op[tables.group_pointer[group]]])


@inlined
def _move(
    tables: Tables,
    units: Units,
    allowed: Float,
    state: State,
    placement: Index,
    critical: Index,
    n_critical: int,
    rng: Rng,
    changed_op: Index,
    changed_device: Index,
) -> int:
    """Move a unit, or exchange the devices of two disjoint units of one level; returns how many ops moved."""
    unit = _some_unit(units, tables, critical, n_critical, rng)
    home = _home(tables, units, placement, unit, rng)
    if uniform(rng) < 0.25:
        level = 0
        while units.level_pointer[level + 1] <= unit:
            level += 1
        first, last = units.level_pointer[level], units.level_pointer[level + 1]
        other = first + below(rng, last - first)
        there = _home(tables, units, placement, other, rng)
        if other == unit or there == home:
            return 0
        changed = _place_unit(tables, units, allowed, placement, unit, home, there, 0, changed_op, changed_device)
        return _place_unit(tables, units, allowed, placement, other, there, home, changed, changed_op, changed_device)
    device = _some_device(tables, units, state, placement, unit, rng)
    origin = home if uniform(rng) < 0.3 else -1
    return _place_unit(tables, units, allowed, placement, unit, origin, device, 0, changed_op, changed_device)


@inlined
def _shift_order(
    tables: Tables,
    units: Units,
    critical: Index,
    n_critical: int,
    bias: Float,
    cost: float,
    rng: Rng,
    changed_op: Index,
    old_bias: Float,
) -> int:
    """Bring all ops of a unit forward or back in the order by the same seconds; returns how many ops."""
    unit = _some_unit(units, tables, critical, n_critical, rng)
    shift = cost * 0.3 * uniform(rng) ** 3 * (1.0 if uniform(rng) < 0.5 else -1.0)
    changed = 0
    for k in range(units.unit_pointer[unit], units.unit_pointer[unit + 1]):
        group = units.unit_group[k]
        for m in range(tables.group_pointer[group], tables.group_pointer[group + 1]):
            op = tables.group_op[m]
            changed_op[changed] = op
            old_bias[changed] = bias[op]
            bias[op] += shift
            changed += 1
    return changed
