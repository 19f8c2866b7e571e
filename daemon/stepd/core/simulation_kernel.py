"""The execution model of PROBLEM_FORMAT as one kernel: a discrete-event simulation of one step.

An instant is handled in rounds: (1) ops that end now are applied by priority, each reserving its transfers; (2) transfers that
arrive now are applied; (3) every idle device picks. Ops of 0 seconds that were picked end at the same instant, in the next
round. Memory is looked at after each round's picks. It knows arrays only; `simulator` is its public face.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, lean
from stepd.core.heaps import pop_timed, push_timed
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index, Int
from stepd.core.simulation_state import State, make_ready, new_state, reset, take_ready, will_pick


@lean
def run_step(
    tables: Tables, state: State, placement: Index, priority: Index, tail: Float, limit: float, track_memory: bool
) -> float:
    """Simulate one step in `state`; returns its seconds, inf when some op can never run.

    placement, priority: int32 [n]. tail: seconds [n] from an op's start that the step lasts at least (zeros when not known).
    Gives up with inf as soon as the step must exceed `limit`: an op starts too late for its tail or for the load of its device.
    """
    n, d = tables.seconds.shape
    reset(tables, state, placement, priority)
    now = 0.0
    done = 0
    soonest, first, others = np.inf, 0, 0  # end of a running op, the device that it runs on, how many more end then
    while True:
        waiting, awaited = 0, np.inf
        picked = False
        for k in range(state.counters[2]):
            device = state.picking[k]
            if state.held[device] > now:
                state.picking[waiting] = device
                waiting += 1
                awaited = min(awaited, state.held[device])
                continue
            op = take_ready(state, device)
            if now + max(tail[op], state.load[device]) > limit:
                return np.inf
            seconds = tables.seconds[op, device]
            state.running[device] = op
            state.start[op] = now
            state.sequence[state.counters[3]] = op
            state.counters[3] += 1
            state.ends[device] = now + seconds
            state.busy[device] += seconds
            state.load[device] -= seconds
            if track_memory:
                state.memory[device] += tables.temp[op]
            picked = True
        state.counters[2] = waiting
        if picked or soonest <= now or track_memory:
            soonest, first, others = np.inf, 0, 0
            for device in range(d):
                if track_memory:
                    state.peak[device] = max(state.peak[device], state.memory[device])
                ends = state.ends[device]
                others = 0 if ends < soonest else others + (ends == soonest)
                first = device if ends < soonest else first
                soonest = min(soonest, ends)
        following = min(soonest, awaited)
        if state.counters[1] > 0:
            following = min(following, state.arrival_time[0])
        if following == np.inf:
            return now if done == n else np.inf
        now = following
        if soonest == now:
            done += 1 + others
            if others > 0:
                _end_ops(tables, state, placement, priority, now, track_memory)
            else:
                _end_op(tables, state, placement, priority, first, now, track_memory)
        while state.counters[1] > 0 and state.arrival_time[0] <= now:
            item = _first_arrival(tables, state, placement)
            _arrive(tables, state, placement, priority, item, now, track_memory)


@inlined
def _handle(state: State, device: int, seconds: float, now: float) -> None:
    """The device sends or receives for `seconds`, after the op that it runs and before the next."""
    if seconds > 0.0:
        begin = max(state.held[device], now)
        if state.running[device] >= 0:
            begin = max(begin, state.ends[device])
        state.held[device] = begin + seconds
        state.busy[device] += seconds


@inlined
def _end_ops(tables: Tables, state: State, placement: Index, priority: Index, now: float, track_memory: bool) -> None:
    """Apply the ops that end now, the lowest priority number first."""
    while True:
        first = -1
        best = 0
        for device in range(len(state.ends)):
            if state.ends[device] == now:
                rank = priority[state.running[device]]
                if first < 0 or rank < best:
                    first = device
                    best = rank
        if first < 0:
            return
        _end_op(tables, state, placement, priority, first, now, track_memory)


@inlined
def _end_op(tables: Tables, state: State, placement: Index, priority: Index, device: int, now: float, track_memory: bool) -> None:
    """The op that runs on `device` ends now."""
    op = state.running[device]
    state.finish[op] = now
    state.running[device] = -1
    state.ends[device] = np.inf
    if state.ready_size[device] > 0:
        will_pick(state, device)
    _send_outputs(tables, state, placement, priority, op, device, now, track_memory)
    if track_memory:
        state.memory[device] -= tables.temp[op]
        _release_inputs(tables, state, placement, op, device)


@inlined
def _send_outputs(
    tables: Tables,
    state: State,
    placement: Index,
    priority: Index,
    op: int,
    home: int,
    now: float,
    track_memory: bool,
) -> None:
    """Hand the op's outputs to readers at home, and reserve transfers by (destination, output)."""
    d = len(state.ready_base)
    first, last = tables.output_pointer[op], tables.output_pointer[op + 1]
    elsewhere = 0
    for output in range(first, last):
        begin, end = tables.reader_pointer[output], tables.reader_pointer[output + 1]
        here = 0
        for k in range(begin, end):
            reader = tables.reader[k]
            at_home = int(placement[reader] == home)
            here += at_home
            state.missing[reader] -= at_home
            if state.missing[reader] == 0:  # at home, too: what is elsewhere lacks this output yet
                make_ready(state, home, priority[reader])
        elsewhere += end - begin - here
        if track_memory:
            state.readers_left[output] = here
            state.memory[home] += tables.output_bytes[output]
    if elsewhere == 0:
        return
    for output in range(first, last):
        for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
            state.waits[(output - first) * d + placement[tables.reader[k]]] += 1
        state.waits[(output - first) * d + home] = 0
    for device in range(d):
        for output in range(first, last):
            readers = state.waits[(output - first) * d + device]
            if readers > 0:
                state.waits[(output - first) * d + device] = 0
                _reserve(tables, state, output, home, device, now)
                if track_memory:
                    state.readers_left[output] += 1
                    state.remote_left[output * d + device] = readers


@inlined
def _reserve(tables: Tables, state: State, output: int, src: int, dst: int, now: float) -> None:
    """Reserve every link of the route from when the last of them is free."""
    pair = src * len(state.ready_base) + dst
    begin = now
    for k in range(tables.route_pointer[pair], tables.route_pointer[pair + 1]):
        begin = max(begin, state.link_free[tables.route_link[k]])
    lasts = tables.latency[src, dst] + tables.output_bytes[output] / tables.bandwidth[src, dst]
    end = begin + lasts
    for k in range(tables.route_pointer[pair], tables.route_pointer[pair + 1]):
        state.link_free[tables.route_link[k]] = end
        state.link_busy[tables.route_link[k]] += lasts
    _handle(state, src, tables.handling[0, src, dst] + tables.handling[1, src, dst] * tables.output_bytes[output], now)
    item = state.counters[0]
    state.transfer_output[item] = output
    state.transfer_device[item] = dst
    state.transfer_start[item] = begin
    state.transfer_end[item] = end
    state.transfer_next[item] = -1
    state.counters[0] += 1
    before = state.last_sent[pair]
    if tables.route_pointer[pair + 1] > tables.route_pointer[pair]:
        state.last_sent[pair] = item
    if before >= 0:  # on the same links, and there first
        state.transfer_next[before] = item
        return
    push_timed(state.arrival_time, state.arrival_item, state.counters[1], end, item)
    state.counters[1] += 1


@inlined
def _first_arrival(tables: Tables, state: State, placement: Index) -> int:
    """Take the transfer that arrives first off its way; the next one on the same way takes its place."""
    item = pop_timed(state.arrival_time, state.arrival_item, state.counters[1])
    following = state.transfer_next[item]
    if following >= 0:
        push_timed(state.arrival_time, state.arrival_item, state.counters[1] - 1, state.transfer_end[following], following)
        return item
    state.counters[1] -= 1
    home = placement[tables.output_op[state.transfer_output[item]]]
    state.last_sent[home * len(state.ready_base) + state.transfer_device[item]] = -1
    return item


@inlined
def _arrive(tables: Tables, state: State, placement: Index, priority: Index, item: int, now: float, track_memory: bool) -> None:
    """The output is on the destination now: readers there go on, and the source may drop its copy."""
    output, device = state.transfer_output[item], state.transfer_device[item]
    home = placement[tables.output_op[output]]
    _handle(state, device, tables.handling[0, home, device] + tables.handling[1, home, device] * tables.output_bytes[output], now)
    for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
        reader = tables.reader[k]
        if placement[reader] == device:
            state.missing[reader] -= 1
            if state.missing[reader] == 0:
                make_ready(state, device, priority[reader])
    if track_memory:
        state.memory[device] += tables.output_bytes[output]
        state.readers_left[output] -= 1
        if state.readers_left[output] == 0:
            state.memory[home] -= tables.output_bytes[output]


@inlined
def _release_inputs(tables: Tables, state: State, placement: Index, op: int, device: int) -> None:
    """The op has ended on `device`: inputs of which it was the last reader there take no memory any more."""
    d = len(state.ready_base)
    for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        output = tables.input[k]
        if placement[tables.output_op[output]] == device:
            state.readers_left[output] -= 1
            left = state.readers_left[output]
        else:
            state.remote_left[output * d + device] -= 1
            left = state.remote_left[output * d + device]
        if left == 0:
            state.memory[device] -= tables.output_bytes[output]


class Trace(NamedTuple):
    """What a search asks of one simulated step."""

    makespan: float  # inf when cut off at the limit
    peak: Int  # [d] bytes


def simulate_alone(
    tables: Tables, placement: Index, priority: Index, tail: Float, limit: float = np.inf, track_memory: bool = True
) -> Trace:
    """One step in a state of its own; arguments as `run_step`. A search that simulates often keeps a State.

    With a limit the step is simulated without its memory first: most steps that have a limit exceed it, and memory is a third of
    the work.
    """
    state = new_state(tables)
    if track_memory and limit < np.inf and run_step(tables, state, placement, priority, tail, limit, False) == np.inf:
        return Trace(np.inf, state.peak)
    makespan = run_step(tables, state, placement, priority, tail, limit, track_memory)
    return Trace(makespan, state.peak)
