"""Local search on the simulator: simulated annealing over where sets of ops run and in which order, as one kernel.

A step is simulated only as far as it can still be accepted: the longest way to its end that an op has in this placement, transfers
included, says early when it cannot. Chains may ask for more: that a step is only simulated when it is estimated to be nearly
short enough (`estimate`). Memory is looked at only for new best points where the chain starts far from filling it. Most
moves do not change how long the step takes; of those, chains that are told to prefer the ones that keep links free for later moves.
Which moves were worth their while is counted, for the caller to draw more of those.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.arrays import add_to, copy_to, first_above, largest
from stepd.core.compiled import inlined, kernel
from stepd.core.penalty import Penalty, penalised
from stepd.core.placement.rng import Rng, uniform
from stepd.core.portfolio.estimate import estimate, new_outlook
from stepd.core.portfolio.moves import Changes, Sight, Units, move, shift
from stepd.core.portfolio.points import Point, order_of, overflow_of, rank_again, ranking_of, upward_ranks
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import State, new_state

LOOK_AGAIN = 8
"""Accepted moves after which what the end waits for is looked up again; a new best is looked at always."""
ALONE, MOVES_AN_OP = 0.5, 20
"""Share of the changes of the order that are of single ops, where a chain has so many moves for every op; with fewer moves in
proportion: there, whole units gain more."""
ROOMY = 0.5
"""Share of every device's memory up to which a chain takes for granted that it suffices, new best points aside."""


class Walk(NamedTuple):
    """How a chain goes. heat: the temperature at first, as a share of the cost; it falls a hundredfold.

    shifts: share of the moves that change the order. shares: float64 [arms], cumulated, how often each arm is drawn.
    traffic: what the mean seconds that a link is taken count beside the cost where a move is accepted or not. doubt: by which
    share of the step an estimate may be too long; what is estimated to take longer is not simulated. inf: nothing is estimated.
    """

    steps: int
    heat: float
    shifts: float
    shares: Float
    traffic: float
    doubt: float


class Found(NamedTuple):
    """The best point seen, and the best of those that memory suffices for (its cost is inf when there was none); by arm: moves
    tried, and by which share of the cost they made it better."""

    best: Point
    fitting: Point
    tried: Float  # [arms]
    gained: Float  # [arms]


@kernel
def anneal(
    tables: Tables,
    units: Units,
    allowed: Float,
    start: Point,
    weight: float,
    tail: Float,
    penalty: Penalty,
    track: bool,
    walk: Walk,
    rng: Rng,
) -> Found:
    """A chain of moves from `start`; none from what cannot run. allowed: [g, d] seconds of groups, inf where they cannot run;
    tail: [n] as in `run_step`."""
    n = len(start.placement)
    state = new_state(tables)
    placement, bias = start.placement.copy(), start.bias.copy()
    way, way_now = np.empty(n), np.empty(n)
    cost = start.cost
    best = start
    fits = start.cost if start.overflow == 0.0 else np.inf
    fitting = Point(start.placement, start.priority, start.bias, start.base, fits, start.seconds, start.overflow)
    tried, gained = np.zeros(len(walk.shares)), np.zeros(len(walk.shares))
    changes = Changes(np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32), np.empty(n))
    d = len(tables.memory)
    one = np.zeros(1, dtype=np.int32)
    sight = Sight(np.empty(n, dtype=np.int32), one, np.zeros(d), np.zeros(d, dtype=np.int64), one.copy())
    ranked = len(start.base) == 0 and weight == 1.0  # keys and ways to the end are the same ranks
    copy_to(way_now, tail)
    if ranked:
        upward_ranks(tables, placement, 1.0, way_now, n - 1)
    keys = np.empty(n)
    priority = order_of(tables, placement, bias, start.base, weight, keys)
    now, then = ranking_of(priority, keys), ranking_of(priority, keys)
    order, moved = priority.copy(), np.empty(n, dtype=np.int32)
    seconds_now = run_step(tables, state, placement, priority, way_now, np.inf, track)
    if seconds_now == np.inf:  # what never ends has no sequence of all ops to look at
        return Found(best, fitting, tried, gained)
    look(tables, state, placement, sight)
    outlook = new_outlook(tables, state.sequence)
    estimates = walk.doubt < np.inf
    estimated_now = estimate(tables, outlook, placement) if estimates else 0.0
    exact = track and not _roomy(tables, state)
    if exact:
        _look_for_room(tables, state, sight)
    sent_to = np.full(d, -1, dtype=np.int32)
    beside = beside_now = walk.traffic * _link_seconds(tables, placement, sent_to) if walk.traffic > 0.0 else 0.0
    alone = min(ALONE, walk.steps / (MOVES_AN_OP * n))
    accepted = 0
    for step in range(walk.steps):
        temperature = cost * walk.heat * 0.01 ** (step / walk.steps)
        limit = cost + beside_now - temperature * np.log(max(1e-12, uniform(rng)))
        shifted = uniform(rng) < walk.shifts
        arm = first_above(walk.shares, uniform(rng))
        if shifted:
            changed = shift(tables, units, sight, placement, bias, 0.3 * cost, alone, rng, changes)
        else:
            changed = move(tables, units, allowed, sight, placement, arm, rng, changes)
        if changed == 0:
            continue
        beside, expected = beside_now, seconds_now
        if not shifted:
            tried[arm] += 1.0
            if estimates:
                expected += estimate(tables, outlook, placement) - estimated_now
                beside = walk.traffic * outlook.sent[0]
            elif walk.traffic > 0.0:
                beside = walk.traffic * _link_seconds(tables, placement, sent_to)
        limit = max(limit - beside, best.cost)  # a new best is taken whatever it sends
        promising = not estimates or expected <= limit + walk.doubt * seconds_now
        if promising:
            copy_to(way, way_now)
            if ranked and not shifted:
                upward_ranks(tables, placement, 1.0, way, _last_of(units, changes, changed))
        reordered = shifted or len(start.base) == 0  # a given order does not depend on the placement
        found, seconds, overflow = np.inf, np.inf, 0.0
        if promising and largest(way) <= limit:
            if reordered:
                if ranked:
                    copy_to(then.key, way)
                elif len(start.base) > 0:
                    copy_to(then.key, start.base)
                else:
                    upward_ranks(tables, placement, weight, then.key, n - 1)
                add_to(then.key, bias)
                rank_again(tables, units.position, now, then, moved, order)
            else:
                copy_to(order, priority)
            seconds = run_step(tables, state, placement, order, way, limit, exact)
            if track and not exact and seconds < best.cost:
                run_step(tables, state, placement, order, way, np.inf, True)
                exact = overflow_of(tables, state) > 0.0
            overflow = overflow_of(tables, state) if seconds < np.inf else 0.0
            found = penalised(seconds, overflow, penalty)
            if overflow == 0.0 and seconds < fitting.cost:
                fitting = Point(placement.copy(), order.copy(), bias.copy(), start.base, seconds, seconds, 0.0)
        if found <= limit:
            priority, order = order, priority
            if reordered:
                now, then = then, now
            accepted += 1
            if found < best.cost:
                if not shifted:
                    gained[arm] += (best.cost - found) / best.cost
                best = Point(placement.copy(), priority.copy(), bias.copy(), start.base, found, seconds, overflow)
                accepted = 0
            cost = found
            if accepted % LOOK_AGAIN == 0:
                look(tables, state, placement, sight)
            copy_to(sight.busy, state.busy)
            if estimates:
                copy_to(outlook.order, state.sequence)
                seconds_now, estimated_now = seconds, estimate(tables, outlook, placement)
            if exact:
                _look_for_room(tables, state, sight)
            copy_to(way_now, way)
            beside_now = beside
        elif shifted:
            for k in range(changed - 1, -1, -1):
                bias[changes.op[k]] = changes.bias[k]
        else:
            for k in range(changed - 1, -1, -1):
                placement[changes.op[k]] = changes.device[k]
    return Found(best, fitting, tried, gained)


@inlined
def _last_of(units: Units, changes: Changes, changed: int) -> int:
    """Place in the topological order of the last op that was changed: what comes after it has the ranks that it had."""
    last = 0
    for k in range(changed):
        last = max(last, units.position[changes.op[k]])
    return last


@inlined
def _link_seconds(tables: Tables, placement: Index, sent_to: Index) -> float:
    """Seconds that transfers take of a link, on average over the links. `sent_to` [d] is scratch."""
    d = len(sent_to)
    sent_to[:] = -1
    total = 0.0
    for output in range(len(tables.output_op)):
        home = placement[tables.output_op[output]]
        for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
            there = placement[tables.reader[k]]
            if there != home and sent_to[there] != output:
                sent_to[there] = output
                links = tables.route_pointer[home * d + there + 1] - tables.route_pointer[home * d + there]
                if links > 0:  # what no path connects takes no link, and cannot run
                    total += links * (tables.latency[home, there] + tables.output_bytes[output] / tables.bandwidth[home, there])
    return total / max(1, tables.n_links)


@inlined
def _look_for_room(tables: Tables, state: State, sight: Sight) -> None:
    """What memory the step in `state` left on each device."""
    sight.short[0] = 0
    for device in range(len(tables.memory)):
        sight.room[device] = tables.memory[device] - state.peak[device]
        if sight.room[device] < 0:
            sight.short[0] += 1


@inlined
def _roomy(tables: Tables, state: State) -> bool:
    """Whether every device has much more memory than the step in `state` took."""
    fullest = 0.0
    for device in range(len(tables.memory)):
        fullest = max(fullest, state.peak[device] / max(1.0, float(tables.memory[device])))
    return fullest <= ROOMY


@kernel
def look(tables: Tables, state: State, placement: Index, sight: Sight) -> None:
    """Fill `sight`: ops back from the last one, each waited for an input or for the op before it on its device."""
    n, d = tables.seconds.shape
    before = np.full(n, -1, dtype=np.int32)
    latest_there = np.full(d, -1, dtype=np.int32)
    op = state.sequence[0]
    for k in range(n):
        other = state.sequence[k]
        before[other] = latest_there[placement[other]]
        latest_there[placement[other]] = other
        if state.finish[other] > state.finish[op]:
            op = other
    count = 0
    while op >= 0 and count < n:
        sight.critical[count] = op
        count += 1
        awaited = -1
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
                awaited = producer
        previous = before[op]
        if previous >= 0 and state.finish[previous] >= max(when, 0.0):
            awaited = previous
        op = awaited
    sight.size[0] = count
