"""Ops that go where their first reader goes: variables, their reads, constants.

Such an op costs next to nothing and waits for nothing that costs. A list scheduler that places it in its turn puts it on the
first idle device, and its readers pay for the transfer; the papers' algorithms do that, all of ours may defer it instead.
"""

from __future__ import annotations

import numpy as np

from stepd.core.compiled import inlined, inner, kernel
from stepd.core.placement.device_choice import fastest_device, roomiest
from stepd.core.placement.partial_schedule import (
    Limits,
    Partial,
    Rules,
    can_run,
    place,
)
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index, Mask


def nothing_deferred(prepared: Prepared) -> Mask:
    """As published: every op is placed in its turn."""
    return np.zeros(len(prepared.tables.topological), dtype=np.bool_)


@kernel
def deferrable(tables: Tables, longest: Float, fraction: float) -> Mask:
    """Ops that have readers, wait for deferrable ops only, and cost at most `fraction` of sending what they make, on any device.

    longest: float64 [n], the seconds of each op on the slowest device that runs it.
    """
    n, d = tables.seconds.shape
    deferred = np.zeros(n, dtype=np.bool_)
    latency, bandwidth = np.inf, 0.0
    for i in range(d):
        for j in range(d):
            if i != j and tables.latency[i, j] < np.inf:
                latency = min(latency, tables.latency[i, j])
                bandwidth = max(bandwidth, tables.bandwidth[i, j])
    if latency == np.inf:
        return deferred
    for op in tables.topological:
        sending = 0.0
        readers = 0
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            sending = max(sending, latency + tables.output_bytes[o] / bandwidth)
            readers += tables.reader_pointer[o + 1] - tables.reader_pointer[o]
        follows = readers > 0 and longest[op] <= fraction * sending
        for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            follows = follows and deferred[tables.output_op[tables.input[i]]]
        deferred[op] = follows
    return deferred


@inlined
def any_unplaced_input(tables: Tables, state: Partial, op: int) -> bool:
    """Whether a deferred producer of `op` waits for it."""
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        if state.placement[tables.output_op[tables.input[i]]] < 0:
            return True
    return False


@inner
def settle_inputs(tables: Tables, limits: Limits, rules: Rules, state: Partial, position: Index, stack: Index, op: int) -> None:
    """Place the deferred producers of `op` whose colocation group has a device already: they are not free to come along."""
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        producer = tables.output_op[tables.input[i]]
        home = state.group_device[tables.group[producer]]
        if state.placement[producer] < 0 and home >= 0:
            bring_inputs(tables, limits, rules, state, position, stack, producer, home)
            place(tables, limits, rules, state, producer, home)


@inner
def bring_inputs(
    tables: Tables,
    limits: Limits,
    rules: Rules,
    state: Partial,
    position: Index,
    stack: Index,
    op: int,
    device: int,
) -> None:
    """Place the deferred ancestors of `op` that have no device yet: on `device`, where they can run there."""
    count = 0
    current = op
    scanned = -1
    while True:
        for i in range(tables.input_pointer[current], tables.input_pointer[current + 1]):
            producer = tables.output_op[tables.input[i]]
            if state.placement[producer] == -1:
                state.placement[producer] = -2  # on the stack
                stack[count] = producer
                count += 1
        scanned += 1
        if scanned >= count:
            break
        current = stack[scanned]
    # Producers first. Few: the ops that one reader pulls along.
    for k in range(1, count):
        producer, j = stack[k], k
        while j > 0 and position[stack[j - 1]] > position[producer]:
            stack[j] = stack[j - 1]
            j -= 1
        stack[j] = producer
    for k in range(count):
        producer = stack[k]
        state.placement[producer] = -1
        target = device
        if not can_run(tables, limits, state, producer, device):
            target = fastest_device(tables, limits, rules, state, producer)
            if target < 0:
                target = roomiest(tables, limits, state, producer)
        place(tables, limits, rules, state, producer, target)


@kernel
def lazy_starts(tables: Tables, order: Index, deferred: Mask, start: Float) -> Float:
    """Start times for the execution order, float64 [n]: a deferred op starts when its first reader does, not as early as it could.

    Nothing waits longer for that, and what it makes is in memory for a shorter time. order: int32 [n], producers first.
    """
    lazy = np.copy(start)
    for k in range(len(order) - 1, -1, -1):
        op = order[k]
        if deferred[op]:
            first = np.inf
            for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
                for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                    first = min(first, lazy[tables.reader[r]])
            lazy[op] = max(lazy[op], first)
    return lazy
