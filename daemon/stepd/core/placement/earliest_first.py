"""Earliest Time First: at every step the (op, device) pair that can start first (ETF, m-ETF and GETF's common loop).

All pairs are not looked at again at every step, which would cost n * ready * d. A device keeps its ready ops in two heaps: those
whose inputs would be there by the time it is idle, by rank, and those that come later, by time. A time in a heap is that of
when it was computed; since busy links and devices only make it later, it is a lower bound, and it is computed afresh when
its pair comes up. (An input that another op has brought in the meantime may make it sooner; that is not noticed: the one thing in
which this differs from the full search, and only link-aware.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inner, kernel
from stepd.core.heaps import pop, pop_timed, push, push_timed
from stepd.core.placement.deferral import any_unplaced_input, bring_inputs, settle_inputs
from stepd.core.placement.device_choice import roomiest
from stepd.core.placement.partial_schedule import (
    Limits,
    Partial,
    Rules,
    can_run,
    fits,
    inputs_on,
    new_partial,
    output_bytes,
    place,
)
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index, Mask


class Choice(NamedTuple):
    """What breaks ties and what is left out. n ops, d devices."""

    order: Index  # [n] ops, producers first: the one that comes first wins a tie
    deferred: Mask  # [n]
    permitted: Mask  # [n, d] pairs that are looked at


class _Queues(NamedTuple):
    position: Index  # [n] place in the order
    missing: Index  # [n] inputs whose producers are neither placed nor deferred
    pairs: Index  # [n] pairs of the op left in the heaps
    stack: Index  # [n] scratch of deferral
    now: Index  # [d, n] heaps of positions
    now_size: Index  # [d]
    later: Float  # [d, n] heaps of times
    later_place: Index  # [d, n] positions that go with the times
    later_size: Index  # [d]
    counters: Index  # [1] ops placed in their turn


@kernel
def earliest_first(tables: Tables, limits: Limits, rules: Rules, choice: Choice) -> Partial:
    """Place all ops; an op that has room on no permitted device goes to the roomiest."""
    state = new_partial(tables, limits, rules)
    n, d = tables.seconds.shape
    queues = _Queues(
        np.empty(n, dtype=np.int32),
        np.zeros(n, dtype=np.int32),
        np.zeros(n, dtype=np.int32),
        np.empty(n, dtype=np.int32),
        np.empty((d, n), dtype=np.int32),
        np.zeros(d, dtype=np.int32),
        np.empty((d, n)),
        np.empty((d, n), dtype=np.int32),
        np.zeros(d, dtype=np.int32),
        np.zeros(1, dtype=np.int32),
    )
    for k in range(n):
        queues.position[choice.order[k]] = k
    _run(tables, limits, rules, choice, state, queues)
    return state


@inner
def _run(tables: Tables, limits: Limits, rules: Rules, choice: Choice, state: Partial, queues: _Queues) -> None:
    todo = 0
    for op in choice.order:
        if choice.deferred[op]:
            continue
        todo += 1
        for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            if not choice.deferred[tables.output_op[tables.input[i]]]:
                queues.missing[op] += 1
        if queues.missing[op] == 0:
            _offer(tables, limits, rules, choice, state, queues, op)
    while queues.counters[0] < todo:
        device = _next_device(choice, state, queues)
        op, due = _take_first(choice, state, queues, device)
        if any_unplaced_input(tables, state, op):
            settle_inputs(tables, limits, rules, state, queues.position, queues.stack, op)
        ready, incoming = inputs_on(tables, rules, state, op, device)
        if (
            ready == np.inf
            or not can_run(tables, limits, state, op, device)
            or not fits(tables, limits, state, op, device, incoming, output_bytes(tables, op))
        ):
            queues.pairs[op] -= 1
            if queues.pairs[op] == 0:
                _commit(tables, limits, rules, choice, state, queues, op, roomiest(tables, limits, state, op))
        elif ready > due:
            size = queues.later_size[device]
            push_timed(queues.later[device], queues.later_place[device], size, ready, queues.position[op])
            queues.later_size[device] = size + 1
        else:
            _commit(tables, limits, rules, choice, state, queues, op, device)


@inner
def _idle_from(state: Partial, device: int) -> float:
    return float(state.busy.starts[device, state.busy.last[device]])


@inner
def _next_device(choice: Choice, state: Partial, queues: _Queues) -> int:
    """The device of the pair that starts first; moves what became due from `later` to `now`, drops what is placed elsewhere."""
    best, best_start, best_position = -1, np.inf, -1
    for device in range(len(queues.now_size)):
        idle = _idle_from(state, device)
        now, later, later_place = queues.now[device], queues.later[device], queues.later_place[device]
        size = queues.later_size[device]
        while size > 0 and (later[0] <= idle or state.placement[choice.order[later_place[0]]] >= 0):
            position = pop_timed(later, later_place, size)
            size -= 1
            if state.placement[choice.order[position]] < 0:
                push(now, 0, queues.now_size[device], position)
                queues.now_size[device] += 1
        queues.later_size[device] = size
        while queues.now_size[device] > 0 and state.placement[choice.order[now[0]]] >= 0:
            pop(now, 0, queues.now_size[device])
            queues.now_size[device] -= 1
        if queues.now_size[device] > 0:
            start, position = idle, now[0]
        elif size > 0:
            start, position = later[0], later_place[0]
        else:
            continue
        if best < 0 or start < best_start or (start == best_start and position < best_position):
            best, best_start, best_position = device, start, position
    return best


@inner
def _take_first(choice: Choice, state: Partial, queues: _Queues, device: int) -> tuple[int, float]:
    """The first pair of `device`, and the time up to which its inputs may come without making it later."""
    if queues.now_size[device] > 0:
        position = pop(queues.now[device], 0, queues.now_size[device])
        queues.now_size[device] -= 1
        return choice.order[position], _idle_from(state, device)
    time = queues.later[device, 0]
    position = pop_timed(queues.later[device], queues.later_place[device], queues.later_size[device])
    queues.later_size[device] -= 1
    return choice.order[position], max(time, _idle_from(state, device))


@inner
def _offer(tables: Tables, limits: Limits, rules: Rules, choice: Choice, state: Partial, queues: _Queues, op: int) -> None:
    """`op` became ready: put its pairs into the heaps."""
    if any_unplaced_input(tables, state, op):
        settle_inputs(tables, limits, rules, state, queues.position, queues.stack, op)
    for device in range(len(tables.memory)):
        if choice.permitted[op, device] and can_run(tables, limits, state, op, device):
            ready, _ = inputs_on(tables, rules, state, op, device)
            if ready < np.inf:
                queues.pairs[op] += 1
                size = queues.later_size[device]
                push_timed(queues.later[device], queues.later_place[device], size, ready, queues.position[op])
                queues.later_size[device] = size + 1
    if queues.pairs[op] == 0:  # no way to any permitted device: one that may run it takes it in its turn
        device = roomiest(tables, limits, state, op)
        queues.pairs[op] = 1
        size = queues.later_size[device]
        push_timed(queues.later[device], queues.later_place[device], size, 0.0, queues.position[op])
        queues.later_size[device] = size + 1


@inner
def _commit(
    tables: Tables,
    limits: Limits,
    rules: Rules,
    choice: Choice,
    state: Partial,
    queues: _Queues,
    op: int,
    device: int,
) -> None:
    if any_unplaced_input(tables, state, op):
        bring_inputs(tables, limits, rules, state, queues.position, queues.stack, op, device)
    place(tables, limits, rules, state, op, device)
    queues.counters[0] += 1
    for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
            reader = tables.reader[r]
            queues.missing[reader] -= 1
            if queues.missing[reader] == 0:
                _offer(tables, limits, rules, choice, state, queues, reader)
