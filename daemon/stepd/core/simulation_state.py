"""What changes while a step is simulated: room for it, and how it is when a step begins.

A search keeps one State and simulates many strategies in it. It knows no rule of the execution model but who is ready at the start.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.bitmap_queue import levels_of, pop, push
from stepd.core.compiled import inlined, kernel
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index, Int


class State(NamedTuple):
    """Everything that changes while a step is simulated; what one step did, when it has ended."""

    start: Float  # [n], inf for ops that never ran
    finish: Float  # [n]
    busy: Float  # [d] seconds of ops and of handling transfers
    load: Float  # [d] seconds of ops that have not started yet
    peak: Int  # [d] bytes; resident bytes alone when memory is not tracked
    memory: Int  # [d] bytes in use
    missing: Index  # [n] inputs that are not on the op's device yet
    op_of: Index  # [n] priority -> op
    sequence: Index  # [n] ops as they started, the first `counters[3]`
    running: Index  # [d] op, -1 when idle
    ends: Float  # [d] when the running op ends
    held: Float  # [d] until when handling transfers keeps the device from starting the next op
    ready: Int  # queues of priorities, one per device
    ready_levels: Index  # of each queue
    ready_base: Index  # [d] where it starts
    ready_size: Index  # [d]
    ready_first: Index  # [d] the lowest priority number that is ready, held outside of the queue
    picking: Index  # [d] idle devices with ready ops, the first `counters[2]`; while nobody picks they stay
    link_free: Float  # [l]
    link_busy: Float  # [l]
    readers_left: Index  # [u] readers on the producer's device plus transfers from there, not done yet
    remote_left: Index  # [u * d] readers left of a received output
    waits: Index  # [(most outputs of an op) * d] readers of the ended op's outputs by device
    counters: Index  # [4] transfers so far, entries of the heap of arrivals, devices that are picking, ops that have started
    arrival_time: Float  # heap of what arrives first between each two devices: on the same links, the others arrive later
    arrival_item: Index
    last_sent: Index  # [d * d] the last transfer on its way from one device to another, -1 where none is
    transfer_output: Index  # in order of reservation
    transfer_device: Index
    transfer_next: Index  # on its way between the same devices, -1 behind the last
    transfer_start: Float
    transfer_end: Float


@kernel
def new_state(tables: Tables) -> State:
    """Room for simulations of one problem."""
    n, d = tables.seconds.shape
    u = len(tables.output_op)
    widest = 1
    for op in range(n):
        widest = max(widest, tables.output_pointer[op + 1] - tables.output_pointer[op])
    transfers = len(tables.reader)
    levels = levels_of(n)
    return State(
        np.empty(n),
        np.empty(n),
        np.empty(d),
        np.empty(d),
        np.empty(d, dtype=np.int64),
        np.empty(d, dtype=np.int64),
        np.empty(n, dtype=np.int32),
        np.empty(n, dtype=np.int32),
        np.empty(n, dtype=np.int32),
        np.empty(d, dtype=np.int32),
        np.empty(d),
        np.empty(d),
        np.empty(d * levels[len(levels) - 1], dtype=np.int64),
        levels,
        np.empty(d, dtype=np.int32),
        np.empty(d, dtype=np.int32),
        np.empty(d, dtype=np.int32),
        np.empty(d, dtype=np.int32),
        np.empty(tables.n_links),
        np.empty(tables.n_links),
        np.empty(u, dtype=np.int32),
        np.empty(u * d, dtype=np.int32),
        np.zeros(widest * d, dtype=np.int32),
        np.empty(4, dtype=np.int32),
        np.empty(transfers),
        np.empty(transfers, dtype=np.int32),
        np.empty(d * d, dtype=np.int32),
        np.empty(transfers, dtype=np.int32),
        np.empty(transfers, dtype=np.int32),
        np.empty(transfers, dtype=np.int32),
        np.empty(transfers),
        np.empty(transfers),
    )


@inlined
def reset(tables: Tables, state: State, placement: Index, priority: Index) -> None:
    """The step begins: nothing has run, ops without inputs are ready."""
    n, d = tables.seconds.shape
    for device in range(d):
        state.busy[device] = 0.0
        state.load[device] = 0.0
        state.memory[device] = 0
        state.running[device] = -1
        state.ends[device] = np.inf
        state.held[device] = 0.0
        state.ready_base[device] = device * state.ready_levels[len(state.ready_levels) - 1]
        state.ready_size[device] = 0
    state.link_free[:] = 0.0
    state.link_busy[:] = 0.0
    state.counters[:] = 0
    state.ready[:] = 0
    state.last_sent[:] = -1
    state.waits[:] = 0
    state.start[:] = np.inf
    state.finish[:] = np.inf
    for op in range(n):
        state.missing[op] = tables.input_pointer[op + 1] - tables.input_pointer[op]
    for op in range(n):
        device = placement[op]
        state.op_of[priority[op]] = op
        state.memory[device] += tables.resident[op]
        state.load[device] += tables.seconds[op, device]
    for device in range(d):
        state.peak[device] = state.memory[device]
    for op in range(n):
        if state.missing[op] == 0:
            make_ready(state, placement[op], priority[op])


@inlined
def make_ready(state: State, device: int, rank: int) -> None:
    """An op of priority `rank` may run on `device` now."""
    if state.ready_size[device] == 0:
        state.ready_first[device] = rank
        if state.running[device] < 0:
            will_pick(state, device)
    else:
        later = max(rank, state.ready_first[device])
        state.ready_first[device] = min(rank, state.ready_first[device])
        push(state.ready, state.ready_levels, state.ready_base[device], later)
    state.ready_size[device] += 1


@inlined
def take_ready(state: State, device: int) -> int:
    """The op that `device` runs next, of those that are ready there. Where it is the only one, no queue is looked at."""
    rank = state.ready_first[device]
    state.ready_size[device] -= 1
    if state.ready_size[device] > 0:
        state.ready_first[device] = pop(state.ready, state.ready_levels, state.ready_base[device])
    return int(state.op_of[rank])


@inlined
def will_pick(state: State, device: int) -> None:
    """The device is idle and has an op to run."""
    state.picking[state.counters[2]] = device
    state.counters[2] += 1
