"""List scheduling: ops in a given order, each on the device where it ends first (HEFT's and DPOS' common loop).

Two things are optional: critical-path devices (FastT section 5.1), where ops of the critical path go to a device chosen for the
path as a whole, and deferral.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, inner, kernel
from stepd.core.placement.deferral import any_unplaced_input, bring_inputs, settle_inputs
from stepd.core.placement.device_choice import fastest_here, roomiest
from stepd.core.placement.partial_schedule import (
    Limits,
    Partial,
    Rules,
    can_run,
    fits,
    inputs_on,
    new_partial,
    output_bytes,
    place_here,
)
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index, Mask


class Plan(NamedTuple):
    """What decides before the first op is placed. n ops."""

    order: Index  # [n] ops, producers first
    path: Index  # ops of the critical path, in order; empty: no critical-path device
    deferred: Mask  # [n] ops that go where their first reader goes
    tail: Float  # [n] seconds from an op's start that the step lasts at least
    limit: float  # give up when the step must last longer; what is placed then has finish times of inf


@kernel
def list_schedule(tables: Tables, limits: Limits, rules: Rules, plan: Plan) -> Partial:
    """Place every op of `plan.order` in turn."""
    state = new_partial(tables, limits, rules)
    n = len(plan.order)
    position = np.empty(n, dtype=np.int32)
    for k in range(n):
        position[plan.order[k]] = k
    on_path = np.zeros(n, dtype=np.bool_)
    for op in plan.path:
        on_path[op] = True
    _place_all(tables, limits, rules, plan, state, position, on_path, np.empty(n, dtype=np.int32))
    return state


@inlined
def _place_all(
    tables: Tables,
    limits: Limits,
    rules: Rules,
    plan: Plan,
    state: Partial,
    position: Index,
    on_path: Mask,
    stack: Index,
) -> None:
    path_device, path_done = -1, 0
    for op in plan.order:
        if state.placement[op] >= 0 or plan.deferred[op]:
            continue
        following = any_unplaced_input(tables, state, op)
        if following:
            settle_inputs(tables, limits, rules, state, position, stack, op)
        device = -1
        if on_path[op]:
            while path_done < len(plan.path) and plan.path[path_done] != op:
                path_done += 1
            if path_device < 0 or not _holds(tables, limits, rules, state, op, path_device):
                path_device = _path_device(tables, limits, rules, state, plan.path[path_done:])
            if path_device >= 0 and _holds(tables, limits, rules, state, op, path_device):
                device = path_device
        if device < 0:
            device = fastest_here(tables, limits, rules, state, op)
        if device < 0:
            device = roomiest(tables, limits, state, op)
        if following:
            bring_inputs(tables, limits, rules, state, position, stack, op, device)
        place_here(tables, limits, rules, state, op, device)
        if state.start[op] + plan.tail[op] > plan.limit:
            state.finish[op] = np.inf
            return


@inner
def _holds(tables: Tables, limits: Limits, rules: Rules, state: Partial, op: int, device: int) -> bool:
    """Whether `op` can run on `device` within its memory, with inputs that can get there."""
    if not can_run(tables, limits, state, op, device):
        return False
    ready, incoming = inputs_on(tables, rules, state, op, device)
    return ready < np.inf and fits(tables, limits, state, op, device, incoming, output_bytes(tables, op))


@inner
def _path_device(tables: Tables, limits: Limits, rules: Rules, state: Partial, path: Index) -> int:
    """The critical-path device for what is left of the path: as many of its ops as fit go to each device in thought; the device
    on which those take the least time on average is taken (ties: the one that takes more of them)."""
    best, best_mean, best_count = -1, np.inf, 0
    for device in range(len(tables.memory)):
        if not _holds(tables, limits, rules, state, path[0], device):
            continue
        free = limits.capacity[device] - state.resident[device] - state.peak[device]
        total, count = 0.0, 0
        for op in path:
            if not can_run(tables, limits, state, op, device):
                continue
            group = tables.group[op]
            if state.group_device[group] < 0:
                free -= limits.group_resident[group]
            if free < 0.0:
                break
            total += tables.seconds[op, device]
            count += 1
        if count > 0 and (total / count < best_mean or (total / count == best_mean and count > best_count)):
            best, best_mean, best_count = device, total / count, count
    return best
