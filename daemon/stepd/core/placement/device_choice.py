"""Which device an op goes to in a schedule under construction: where it would end first, or the best effort when memory is short.

Looking for room on links costs more than all the rest. So every device is first judged by what is known without it: an input
cannot be there before its producer's end plus the bare transfer. Devices are taken in the order of these lower bounds, and looked
at in full only while they may still beat the best one found; what comes out is what a look at all of them gives.
"""

from __future__ import annotations

import numpy as np

from stepd.core.compiled import inlined, inner
from stepd.core.placement.partial_schedule import Limits, Partial, Rules, can_run, fits, inputs_on, output_bytes, start_on
from stepd.core.prepared import Tables


@inlined
def fastest_here(tables: Tables, limits: Limits, rules: Rules, state: Partial, op: int) -> int:
    """The device with room on which `op` would end first (ties: the fewest bytes to bring, then the first), else -1."""
    n_devices = len(tables.memory)
    made = output_bytes(tables, op)
    soonest, refined = state.soonest, state.refined
    _inputs_at_best(tables, state, op)
    for device in range(n_devices):
        refined[device] = 0
        if can_run(tables, limits, state, op, device):
            soonest[device] = state.at_best[device] + tables.seconds[op, device]
        else:
            soonest[device] = np.inf
    best, best_finish, best_incoming = -1, np.inf, np.inf
    while True:
        device, least = 0, soonest[0]
        for k in range(1, n_devices):  # without a branch that the processor would have to guess
            bound = soonest[k]
            device = k if bound < least else device
            least = min(least, bound)
        if soonest[device] > best_finish or soonest[device] == np.inf:
            return best
        if refined[device] == 0:  # when the device itself has room: a sharper bound for one look at its timeline
            refined[device] = 1
            bare = state.at_best[device]
            soonest[device] = start_on(tables, rules, state, op, device, bare) + tables.seconds[op, device]
            continue
        soonest[device] = np.inf
        ready, incoming = inputs_on(tables, rules, state, op, device)
        if not fits(tables, limits, state, op, device, incoming, made):
            continue
        finish = start_on(tables, rules, state, op, device, ready) + tables.seconds[op, device]
        if finish > best_finish or finish == np.inf:
            continue
        if finish < best_finish or incoming < best_incoming or (incoming == best_incoming and device < best):
            best, best_finish, best_incoming = device, finish, incoming


@inner
def fastest_device(tables: Tables, limits: Limits, rules: Rules, state: Partial, op: int) -> int:
    """`fastest_here`, compiled once for all who ask it seldom."""
    return fastest_here(tables, limits, rules, state, op)


@inlined
def _inputs_at_best(tables: Tables, state: Partial, op: int) -> None:
    """When all inputs of `op` could be on each device at the soonest, were all links idle; what `inputs_on` says is never less."""
    at_best = state.at_best
    at_best[:] = 0.0
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        o = tables.input[i]
        producer = tables.output_op[o]
        source = state.placement[producer]
        if source < 0:
            continue
        finish, size = state.finish[producer], float(tables.output_bytes[o])
        for device in range(len(tables.memory)):
            sent = state.arrival[o, device]
            bare = finish + (tables.latency[source, device] + size / tables.bandwidth[source, device])
            at_best[device] = max(at_best[device], sent if sent < np.inf else bare)


@inner
def roomiest(tables: Tables, limits: Limits, state: Partial, op: int) -> int:
    """The device with the most memory left among those that `op` can run on: the best effort when it fits nowhere. One that its
    inputs cannot be sent to is the last resort."""
    best, most, reached = -1, -np.inf, False
    for device in range(len(tables.memory)):
        if can_run(tables, limits, state, op, device):
            left = limits.capacity[device] - state.resident[device] - state.peak[device]
            reaches = _inputs_reach(tables, state, op, device)
            if best < 0 or (reaches and not reached) or (reaches == reached and left > most):
                best, most, reached = device, left, reaches
    return best


@inlined
def _inputs_reach(tables: Tables, state: Partial, op: int, device: int) -> bool:
    """Whether links lead to `device` from wherever inputs of `op` are made, as far as that is known."""
    for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        source = state.placement[tables.output_op[tables.input[i]]]
        if source >= 0 and tables.latency[source, device] == np.inf:
            return False
    return True
