"""m-SCT (Baechi, Jeon et al., SoCC 2020, section 3.2.2): earliest start first, while devices wait for favourite children.

After an op whose favourite child is not placed yet a device stays awake for the child for as long as a transfer would take: in that
time it takes only urgent ops, those whose inputs are all there already.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.coarsen import coarsen, expand
from stepd.core.compiled import inner, lean
from stepd.core.heaps import pop_timed, push_timed
from stepd.core.placement.coarse_groups import coplaced, merge_ops
from stepd.core.placement.device_choice import roomiest
from stepd.core.placement.favourite_children import favourite_children
from stepd.core.placement.partial_schedule import (
    Limits,
    Partial,
    Rules,
    can_run,
    fits,
    inputs_on,
    limits_of,
    new_partial,
    output_bytes,
    start_on,
)
from stepd.core.placement.partial_schedule import place as run_on
from stepd.core.placement.ranks import op_seconds, transfer_seconds
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Float, Index, Problem
from stepd.core.strategy import Strategy

LP_SECONDS = 60.0
"""Most for the linear program, where the budget is longer."""
_GAPS = 2  # without insertion only the last gap of a timeline counts


class Awake(NamedTuple):
    """Per device: until: float64 [d], seconds; child: int32 [d], the op that it waits for (-1: none)."""

    until: Float
    child: Index


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Parameters: clusters (most ops of the LP; what is left of more after co-placement is merged), threshold (x of a favourite
    child), lp_seconds (default: the budget, at most LP_SECONDS)."""
    cluster = coplaced(problem)
    cluster = merge_ops(coarsen(problem, cluster).problem, options.parameter("clusters", 5000))[cluster]
    coarse = coarsen(problem, cluster)
    prepared = prepare(coarse.problem)
    tables = prepared.tables
    seconds, transfer = op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean")
    lp_seconds = options.parameter("lp_seconds", min(LP_SECONDS, options.budget_seconds))
    child = favourite_children(tables, seconds, transfer, options.parameter("threshold", 0.5), lp_seconds)
    rules = Rules(contention=options.link_aware, insertion=False, gaps=_GAPS)
    state, sequence = schedule(tables, limits_of(prepared, options.memory_factor), rules, child, transfer)
    order = np.lexsort((sequence, state.start))
    priority = np.empty(len(order), dtype=np.int32)
    priority[order] = np.arange(len(order), dtype=np.int32)
    placement, priority = expand(coarse, state.placement, priority)
    return finish(
        problem,
        "m-sct",
        options,
        placement,
        priority,
        favourite_children=int((child >= 0).sum()),
        clusters=coarse.problem.n_ops,
    )


def schedule(tables: Tables, limits: Limits, rules: Rules, child: Index, transfer: Float) -> tuple[Partial, Index]:
    """Place every op; the second value is the number of each op in the order of placing, int32 [n].

    Earliest starts only grow while other ops are placed, so a heap of old values is enough: what is popped is computed again, and
    goes back when it is not the earliest any more.
    """
    n, n_devices = tables.seconds.shape
    state = new_partial(tables, limits, rules)
    awake = Awake(np.zeros(n_devices), np.full(n_devices, -1, dtype=np.int32))
    missing = np.diff(tables.input_pointer)
    times, items = np.empty(n), np.empty(n, dtype=np.int32)
    sequence = np.empty(n, dtype=np.int32)
    _run(tables, limits, rules, state, awake, child, transfer, missing, times, items, sequence)
    return state, sequence


@lean
def _run(
    tables: Tables,
    limits: Limits,
    rules: Rules,
    state: Partial,
    awake: Awake,
    child: Index,
    transfer: Float,
    missing: Index,
    times: Float,
    items: Index,
    sequence: Index,
) -> None:
    placed, size = 0, 0
    for op in range(len(missing)):
        if missing[op] == 0:
            push_timed(times, items, size, 0.0, op)
            size += 1
    while size > 0:
        op = pop_timed(times, items, size)
        size -= 1
        device, start = _earliest(tables, limits, rules, state, awake, op)
        if size > 0 and start > times[0] and start < np.inf:
            push_timed(times, items, size, start, op)
            size += 1
            continue
        if device < 0:
            device = roomiest(tables, limits, state, op)
        run_on(tables, limits, rules, state, op, device)
        sequence[op] = placed
        placed += 1
        _wait_for_child(tables, state, awake, child, transfer, op, device)
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                reader = tables.reader[r]
                missing[reader] -= 1
                if missing[reader] == 0:
                    push_timed(times, items, size, state.finish[op], reader)
                    size += 1


@inner
def _earliest(tables: Tables, limits: Limits, rules: Rules, state: Partial, awake: Awake, op: int) -> tuple[int, float]:
    """The device with room on which `op` would end first, and its start there; -1 and inf when no device has room.

    On devices of one speed that is where it starts first, as published; a slow device that is always free would get everything.
    """
    best, best_start, best_end = -1, np.inf, np.inf
    for d in range(len(tables.memory)):
        if not can_run(tables, limits, state, op, d):
            continue
        ready, incoming = inputs_on(tables, rules, state, op, d)
        if not fits(tables, limits, state, op, d, incoming, output_bytes(tables, op)):
            continue
        start = start_on(tables, rules, state, op, d, ready)
        waits = awake.child[d] >= 0 and awake.child[d] != op and state.placement[awake.child[d]] < 0
        if waits and ready >= start:  # not urgent: its inputs would come while the device waits
            start = max(start, awake.until[d])
        end = start + tables.seconds[op, d]
        if end < best_end or (end == best_end < np.inf and start < best_start):
            best, best_start, best_end = d, start, end
    return best, best_start


@inner
def _wait_for_child(tables: Tables, state: Partial, awake: Awake, child: Index, transfer: Float, op: int, device: int) -> None:
    awake.child[device] = child[op]
    if child[op] >= 0:
        longest = 0.0
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                if tables.reader[r] == child[op]:
                    longest = max(longest, transfer[o])
        awake.until[device] = state.finish[op] + longest
