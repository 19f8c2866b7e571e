"""A schedule under construction: what op i would cost on device d now, and placing it there.

All list schedulers (DPOS, HEFT, ETF, Celeritas' Adjusting Placement, ...) share it. Transfers are either free of contention, as the
papers published them, or reserved on the links with the rules of PROBLEM_FORMAT (an output goes to a device once, a link
carries one transfer at a time, a multi-hop transfer holds all its links). Memory is kept as PROBLEM_FORMAT counts it, in the
order of placing instead of the order of time: resident bytes of what is placed, plus outputs from their producer until their last
reader is placed. It knows no algorithm and no priority.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, inner, kernel
from stepd.core.placement.timeline import (
    Timelines,
    book,
    book_gap,
    earliest_here,
    earliest_on_all,
    first_gap,
    new_timelines,
    take,
)
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index, Int
from stepd.core.reach import possible_seconds


class Limits(NamedTuple):
    """What a placement must keep to. g groups, d devices."""

    group_seconds: Float  # [g, d] inf where the group cannot run, or where no links lead
    group_resident: Int  # [g] bytes
    capacity: Float  # [d] bytes


class Rules(NamedTuple):
    """How transfers and idle time are treated."""

    contention: bool  # reserve links (False: as published, every transfer has the links to itself)
    insertion: bool  # look for idle gaps between the ops already placed on a device (links: always)
    gaps: int  # newest idle gaps kept per device and link


class Partial(NamedTuple):
    """The state. n ops, u outputs, g groups, d devices."""

    placement: Index  # [n] -1: not placed yet
    start: Float  # [n]
    finish: Float  # [n]
    arrival: Float  # [u, d] when output u is on device d; inf: never sent there
    readers_left: Index  # [u] readers not placed yet
    group_device: Index  # [g] -1: none yet
    resident: Float  # [d] bytes
    live: Float  # [d] bytes of outputs that have readers left
    peak: Float  # [d] largest live + running op so far
    busy: Timelines  # devices
    links: Timelines
    queue_begin: Float  # [d] scratch of inputs_on, by source
    queue_load: Float  # [d]
    at_best: Float  # [d] scratch of the choice of a device
    soonest: Float  # [d]
    refined: Index  # [d]
    room_of: Index  # [d] the op that room was last looked for on each device: whatever takes room there looks for it first
    room_ready: Float  # [d] from when on
    room: Int  # [d] the gap that was found
    overflow: Index  # [1] ops placed where the memory did not suffice, since it did nowhere


def limits_of(prepared: Prepared, memory_factor: float) -> Limits:
    """The limits of a problem, with `memory_factor` of every device's memory (inf: none)."""
    memory = prepared.tables.memory.astype(np.float64)
    capacity = memory * memory_factor if np.isfinite(memory_factor) else np.full(len(memory), np.inf)
    return Limits(possible_seconds(prepared), prepared.group_resident, capacity)


@kernel
def new_partial(tables: Tables, limits: Limits, rules: Rules) -> Partial:
    """Nothing placed yet."""
    n, d = tables.seconds.shape
    u = len(tables.output_op)
    tiny = np.inf
    for value in tables.seconds.ravel():
        if 0.0 < value < tiny:
            tiny = value
    readers = np.empty(u, dtype=np.int32)
    for o in range(u):
        readers[o] = tables.reader_pointer[o + 1] - tables.reader_pointer[o]
    link_tiny = np.inf
    for i in range(d):
        for j in range(d):
            if i != j and tables.latency[i, j] < link_tiny:
                link_tiny = tables.latency[i, j]
    return Partial(
        np.full(n, -1, dtype=np.int32),
        np.zeros(n),
        np.zeros(n),
        np.full((u, d), np.inf),
        readers,
        np.full(len(limits.group_resident), -1, dtype=np.int32),
        np.zeros(d),
        np.zeros(d),
        np.zeros(d),
        # Less than half of the shortest op or latency is room for nothing, and rounding errors.
        new_timelines(d, rules.gaps, 0.5 * tiny if tiny < np.inf else 0.0),
        new_timelines(max(1, tables.n_links), rules.gaps, 0.5 * link_tiny if link_tiny < np.inf else 0.0),
        np.zeros(d),
        np.zeros(d),
        np.zeros(d),
        np.zeros(d),
        np.zeros(d, dtype=np.int32),
        np.full(d, -1, dtype=np.int32),
        np.zeros(d),
        np.zeros(d, dtype=np.int64),
        np.zeros(1, dtype=np.int32),
    )


@inlined
def can_run(tables: Tables, limits: Limits, state: Partial, op: int, device: int) -> bool:
    """Whether kernels and the colocation group of `op` allow `device`."""
    group = tables.group[op]
    if state.group_device[group] >= 0:
        return bool(state.group_device[group] == device)
    return bool(limits.group_seconds[group, device] < np.inf)


@inlined
def inputs_on(tables: Tables, rules: Rules, state: Partial, op: int, device: int) -> tuple[float, float]:
    """When all inputs of `op` could be on `device`, and the bytes that would come.

    Several transfers from one source share its links: together they end no sooner than their sum after the first of them starts.
    An input that is not placed yet counts as if it came along at no cost.
    """
    ready, incoming = 0.0, 0.0
    first, last = tables.input_pointer[op], tables.input_pointer[op + 1]
    shared = rules.contention and last - first > 1
    if shared:
        for source in range(len(tables.memory)):
            state.queue_begin[source] = np.inf
            state.queue_load[source] = 0.0
    for i in range(first, last):
        o = tables.input[i]
        arrival = state.arrival[o, device]
        if arrival == np.inf:
            producer = tables.output_op[o]
            source = state.placement[producer]
            incoming += tables.output_bytes[o]
            if source < 0:
                continue
            seconds = tables.latency[source, device] + tables.output_bytes[o] / tables.bandwidth[source, device]
            if seconds == np.inf:
                return np.inf, incoming
            begin = state.finish[producer]
            if rules.contention:
                pair = source * len(tables.memory) + device
                first_link, end_link = tables.route_pointer[pair], tables.route_pointer[pair + 1]
                if end_link - first_link == 1:
                    begin = earliest_here(state.links, tables.route_link[first_link], begin, seconds, True)
                else:
                    begin = earliest_on_all(state.links, tables.route_link[first_link:end_link], begin, seconds)
            arrival = begin + seconds
            if shared:
                state.queue_begin[source] = min(state.queue_begin[source], begin)
                state.queue_load[source] += seconds
                arrival = max(arrival, state.queue_begin[source] + state.queue_load[source])
        ready = max(ready, arrival)
    return ready, incoming


@inlined
def start_on(tables: Tables, rules: Rules, state: Partial, op: int, device: int, ready: float) -> float:
    """EST (FastT section 5.1): the earliest start of `op` on `device` when its inputs are there at `ready`."""
    if ready == np.inf:
        return np.inf
    if tables.seconds[op, device] <= 0.0:
        return ready
    begin: float = state.busy.starts[device, _gap_for(tables, rules, state, op, device, ready)]
    return max(begin, ready)


@inlined
def _gap_for(tables: Tables, rules: Rules, state: Partial, op: int, device: int, ready: float) -> int:
    """The gap that `op`, which takes some time, goes to on `device`. The same is asked again and again: first for when its inputs
    could be there at the soonest, then for when they will be, then to place it."""
    if not rules.insertion:
        return int(state.busy.last[device])
    least: int = 0
    if state.room_of[device] == op and ready >= state.room_ready[device]:
        least = state.room[device]
        if ready == state.room_ready[device]:
            return least
    gap = first_gap(state.busy, device, ready, tables.seconds[op, device], least)
    state.room_of[device] = op
    state.room_ready[device] = ready
    state.room[device] = gap
    return gap


@inlined
def output_bytes(tables: Tables, op: int) -> float:
    """Bytes of all outputs of `op` that have readers."""
    total = 0.0
    for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        total += tables.output_bytes[o]
    return total


@inlined
def fits(tables: Tables, limits: Limits, state: Partial, op: int, device: int, incoming: float, made: float) -> bool:
    """Whether `op`, with `incoming` bytes of inputs and `made` of outputs, keeps the memory of `device`; a group counts whole with
    its first op."""
    group = tables.group[op]
    resident = state.resident[device]
    if state.group_device[group] < 0:
        resident += limits.group_resident[group]
    running = state.live[device] + incoming + max(float(tables.temp[op]), made)
    return bool(resident + max(running, state.peak[device]) <= limits.capacity[device])


@inlined
def place_here(tables: Tables, limits: Limits, rules: Rules, state: Partial, op: int, device: int) -> None:
    """Send the inputs of `op`, which must be placed, to `device` and run it there as early as possible."""
    ready, incoming = 0.0, 0.0
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        o = tables.input[i]
        if state.arrival[o, device] == np.inf:
            incoming += tables.output_bytes[o]
            _send(tables, rules, state, o, device)
        ready = max(ready, state.arrival[o, device])
    seconds, start = tables.seconds[op, device], ready
    if seconds > 0.0:
        start = book_gap(state.busy, device, _gap_for(tables, rules, state, op, device, ready), ready, seconds)
    state.placement[op] = device
    state.start[op] = start
    state.finish[op] = start + seconds
    for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        state.arrival[o, device] = start + seconds
    _account(tables, limits, state, op, device, incoming)


@inner
def place(tables: Tables, limits: Limits, rules: Rules, state: Partial, op: int, device: int) -> None:
    """`place_here`, compiled once for all who do it seldom."""
    place_here(tables, limits, rules, state, op, device)


@inlined
def _send(tables: Tables, rules: Rules, state: Partial, o: int, device: int) -> None:
    producer = tables.output_op[o]
    source = state.placement[producer]
    seconds = tables.latency[source, device] + tables.output_bytes[o] / tables.bandwidth[source, device]
    begin = state.finish[producer]
    if rules.contention and seconds < np.inf:
        pair = source * len(tables.memory) + device
        first, last = tables.route_pointer[pair], tables.route_pointer[pair + 1]
        if last - first == 1:
            begin = book(state.links, tables.route_link[first], begin, seconds, True)
        else:
            begin = earliest_on_all(state.links, tables.route_link[first:last], begin, seconds)
            for k in range(first, last):
                take(state.links, tables.route_link[k], begin, seconds)
    # Unreachable devices are nobody's choice; a large time instead of inf keeps what follows comparable.
    state.arrival[o, device] = begin + min(seconds, 1e9)


@inlined
def _account(tables: Tables, limits: Limits, state: Partial, op: int, device: int, incoming: float) -> None:
    group = tables.group[op]
    if state.group_device[group] < 0:
        state.group_device[group] = device
        state.resident[device] += limits.group_resident[group]
    made = output_bytes(tables, op)
    live = state.live[device] + incoming
    state.peak[device] = max(state.peak[device], live + max(float(tables.temp[op]), made))
    if state.resident[device] + state.peak[device] > limits.capacity[device]:
        state.overflow[0] += 1
    state.live[device] = live + made
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        o = tables.input[i]
        state.readers_left[o] -= 1
        if state.readers_left[o] == 0:
            for holder in range(len(tables.memory)):
                if state.arrival[o, holder] < np.inf:
                    state.live[holder] -= tables.output_bytes[o]
