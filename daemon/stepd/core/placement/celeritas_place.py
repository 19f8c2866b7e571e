"""Celeritas' placers of a coarse graph: Order-Place (section 5.2) and Adjusting Placement (Algorithm 2)."""

from __future__ import annotations

import numpy as np

from stepd.core.compiled import inner, lean
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
    start_on,
)
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index


def adjusting_placement(tables: Tables, limits: Limits, rules: Rules, order: Index, transfer: Float) -> Partial:
    """Algorithm 2: stay on the device of the op before, unless another starts it sooner by more than back_cost (Equation 9).

    order: int32 [n], topological. transfer: float64 [u], c of every output. When no device has room: the roomiest.
    """
    state = new_partial(tables, limits, rules)
    _adjust(tables, limits, rules, order, transfer, state, np.empty(len(tables.memory)))
    return state


@lean
def _adjust(tables: Tables, limits: Limits, rules: Rules, order: Index, transfer: Float, state: Partial, begin: Float) -> None:
    current = 0
    for op in order:
        earliest_device = _starts(tables, limits, rules, state, op, begin)
        if begin[current] < np.inf:
            if begin[current] - begin[earliest_device] > _back_cost(tables, transfer, op):
                current = earliest_device
        elif begin[earliest_device] < np.inf:
            current = earliest_device
        else:
            current = roomiest(tables, limits, state, op)
        place(tables, limits, rules, state, op, current)


@inner
def _starts(tables: Tables, limits: Limits, rules: Rules, state: Partial, op: int, begin: Float) -> int:
    """COMP_EST of every device into `begin` (inf: cannot run there or no room); the device of the smallest."""
    best = 0
    for device in range(len(begin)):
        begin[device] = np.inf
        if can_run(tables, limits, state, op, device):
            ready, incoming = inputs_on(tables, rules, state, op, device)
            if fits(tables, limits, state, op, device, incoming, output_bytes(tables, op)):
                begin[device] = start_on(tables, rules, state, op, device, ready)
        if begin[device] < begin[best]:
            best = device
    return best


@inner
def _back_cost(tables: Tables, transfer: Float, op: int) -> float:
    """Equation 8: the longest transfer to a successor."""
    longest = 0.0
    for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        longest = max(longest, transfer[o])
    return longest


def order_place(tables: Tables, limits: Limits, rules: Rules, order: Index) -> Partial:
    """Order-Place: fill one device after the other in `order` (int32 [n], topological); when all are full, the roomiest."""
    state = new_partial(tables, limits, rules)
    _fill(tables, limits, rules, order, state)
    return state


@lean
def _fill(tables: Tables, limits: Limits, rules: Rules, order: Index, state: Partial) -> None:
    current = 0
    for op in order:
        device = -1
        for k in range(len(tables.memory)):  # from the current device on, and the ones before it only as a last resort
            candidate = (current + k) % len(tables.memory)
            if device < 0 and can_run(tables, limits, state, op, candidate):
                ready, incoming = inputs_on(tables, rules, state, op, candidate)
                if ready < np.inf and fits(tables, limits, state, op, candidate, incoming, output_bytes(tables, op)):
                    device = candidate
        if device < 0:
            device = roomiest(tables, limits, state, op)
        elif limits.group_seconds[tables.group[op], current] < np.inf and device > current:
            current = device
        place(tables, limits, rules, state, op, device)
