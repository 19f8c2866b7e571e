"""Schedules under construction keep the rules, and ETF finds what the full search over all pairs finds."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.compiled import kernel
from stepd.core.placement.deferral import deferrable, lazy_starts, nothing_deferred
from stepd.core.placement.earliest_first import Choice, earliest_first
from stepd.core.placement.list_scheduling import Plan, list_schedule
from stepd.core.placement.partial_schedule import Rules, limits_of, new_partial, place, start_on
from stepd.core.placement.ranks import by_rank, critical_path, op_seconds, transfer_seconds, upward_ranks
from stepd.core.prepared import prepare

MODEST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def ranked(prepared):
    rank = upward_ranks(prepared.tables, op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean"))
    return rank, by_rank(prepared, rank)


def schedule(prepared, kind, contention, deferred, memory_factor):
    rank, order = ranked(prepared)
    n, d = prepared.tables.seconds.shape
    limits = limits_of(prepared, memory_factor)
    mask = deferrable(prepared.tables, op_seconds(prepared, "max"), 1.0) if deferred else nothing_deferred(prepared)
    if kind == "etf":
        return earliest_first(
            prepared.tables, limits, Rules(contention, False, 64), Choice(order, mask, np.ones((n, d), dtype=bool))
        )
    path = critical_path(prepared.tables, rank)
    plan = Plan(order, path if kind == "dpos" else path[:0], mask, np.zeros(n), np.inf)
    return list_schedule(prepared.tables, limits, Rules(contention, True, 64), plan)


@pytest.mark.parametrize("kind", ["dpos", "heft", "etf"])
@MODEST
@given(data=st.data())
def test_a_schedule_keeps_order_transfers_devices_and_groups(kind, data, lab):
    problem = data.draw(lab.problems(memory=(12, 40, 10**6)))
    prepared = prepare(problem)
    tables = prepared.tables
    contention = data.draw(st.booleans())
    state = schedule(prepared, kind, contention, data.draw(st.booleans()), data.draw(st.sampled_from([1.0, np.inf])))
    assert (state.placement >= 0).all()
    for group in range(prepared.n_groups):
        assert len(set(state.placement[tables.group == group].tolist())) == 1
    for o in range(len(tables.output_op)):
        producer = tables.output_op[o]
        for reader in tables.reader[tables.reader_pointer[o] : tables.reader_pointer[o + 1]]:
            src, dst = state.placement[producer], state.placement[reader]
            sending = 0.0 if src == dst else tables.latency[src, dst] + tables.output_bytes[o] / tables.bandwidth[src, dst]
            assert state.start[reader] >= state.finish[producer] + sending - 1e-9
    assert np.allclose(state.finish - state.start, tables.seconds[np.arange(problem.n_ops), state.placement])
    for device in range(problem.n_devices):
        on = np.flatnonzero((state.placement == device) & (state.finish > state.start))
        spans = sorted(zip(state.start[on].tolist(), state.finish[on].tolist(), strict=True))
        assert all(end <= start + 1e-9 for (_, end), (start, _) in itertools.pairwise(spans))
    assert (state.overflow[0] == 0) or (limits_of(prepared, 1.0).capacity < 10**6).any()


@MODEST
@given(data=st.data())
def test_link_aware_schedules_never_book_a_link_twice(data, lab):
    """The arrivals of a schedule fit onto the links one after the other: no link is busy for longer than until its last arrival."""
    problem = data.draw(lab.problems())
    prepared = prepare(problem)
    tables = prepared.tables
    state = schedule(prepared, "heft", True, False, np.inf)
    busy = np.zeros(max(1, tables.n_links))
    last = np.zeros(max(1, tables.n_links))
    for o in range(len(tables.output_op)):
        src = state.placement[tables.output_op[o]]
        for dst in range(problem.n_devices):
            if dst != src and np.isfinite(state.arrival[o, dst]):
                pair = src * problem.n_devices + dst
                for link in tables.route_link[tables.route_pointer[pair] : tables.route_pointer[pair + 1]]:
                    busy[link] += tables.latency[src, dst] + tables.output_bytes[o] / tables.bandwidth[src, dst]
                    last[link] = max(last[link], state.arrival[o, dst])
    assert (busy <= last + 1e-9).all()


def exhaustive_etf(prepared, order):
    """ETF as published: at every step all ready ops on all devices, the earliest start, ties by the order, then by device."""
    tables = prepared.tables
    n, d = tables.seconds.shape
    position = {op: k for k, op in enumerate(order.tolist())}
    free, placed, finish, start, group_device = [0.0] * d, {}, {}, {}, {}
    while len(placed) < n:
        pairs = []
        for op in set(range(n)) - set(placed):
            inputs = tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]]
            if any(int(tables.output_op[o]) not in placed for o in inputs):
                continue
            group = int(tables.group[op])
            for device in range(d):
                if group_device.get(group, device) != device or not np.isfinite(prepared.group_seconds[group, device]):
                    continue
                arrivals = [0.0]
                for o in inputs:
                    producer = int(tables.output_op[o])
                    src = placed[producer]
                    sending = tables.latency[src, device] + tables.output_bytes[o] / tables.bandwidth[src, device]
                    arrivals.append(finish[producer] + (0.0 if src == device else sending))
                pairs.append((max(free[device], *arrivals), position[op], device, op))
        begin, _, device, op = min(pairs)
        placed[op], start[op], finish[op] = device, begin, begin + tables.seconds[op, device]
        free[device] = max(free[device], finish[op])
        group_device[int(tables.group[op])] = device
    return np.array([placed[op] for op in range(n)]), np.array([start[op] for op in range(n)])


@MODEST
@given(data=st.data())
def test_etf_with_heaps_is_etf_over_all_pairs(data, lab):
    problem = data.draw(lab.problems())
    # Ops of 0 s slip in between others here and wait in the plain search: leave none.
    problem = replace(problem, seconds=np.where(problem.seconds == 0, 0.75, problem.seconds))
    prepared = prepare(problem)
    state = schedule(prepared, "etf", False, False, np.inf)
    placement, start = exhaustive_etf(prepared, ranked(prepared)[1])
    assert state.placement.tolist() == placement.tolist()
    assert state.start.tolist() == pytest.approx(start.tolist())


def test_a_variable_goes_where_its_reader_goes_and_starts_no_sooner(lab):
    """Two layers with a variable each, side by side on two devices; placed in their turn both variables would go to device 0."""
    edges = [(0, 2, 0, 8), (1, 3, 0, 8)]
    problem = lab.make_problem(
        [[0.0] * 2, [0.0] * 2, [3.0] * 2, [2.0] * 2], edges, [(0, 1, 1.0, 0.1), (1, 0, 1.0, 0.1)], [99, 99], [5, 5, 0, 0]
    )
    prepared = prepare(problem)
    _, order = ranked(prepared)
    deferred = deferrable(prepared.tables, op_seconds(prepared, "max"), 1.0)
    assert deferred.tolist() == [True, True, False, False]
    state = schedule(prepared, "heft", True, True, 1.0)
    assert state.placement.tolist() == [0, 1, 0, 1]
    assert state.finish.max() == 3.0
    lazy = lazy_starts(prepared.tables, order, deferred, np.array([0.0, 0.0, 4.0, 7.0]))
    assert lazy.tolist() == [4.0, 7.0, 4.0, 7.0]


@kernel
def starts_after_a_look(tables, limits, rules):
    """Start times of ops that are placed on device 0, op 0 aside, when op 2's room there is looked for before op 3 takes some."""
    state = new_partial(tables, limits, rules)
    place(tables, limits, rules, state, 0, 1)
    place(tables, limits, rules, state, 1, 0)
    start_on(tables, rules, state, 2, 0, 0.0)
    for op in (3, 2, 4):
        place(tables, limits, rules, state, op, 0)
    return state.start


def test_room_that_was_found_is_looked_for_again_when_something_else_took_some(lab):
    """Op 1 waits for op 0's output until 1 s, op 2 finds room behind it; then op 3 fills the second before op 1."""
    links = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]
    problem = lab.make_problem([[0.0] * 2, [2.0] * 2, [5.0] * 2, [1.0] * 2, [4.0] * 2], [(0, 1, 0, 1)], links, [999] * 2)
    prepared = prepare(problem)
    start = starts_after_a_look(prepared.tables, limits_of(prepared, 1.0), Rules(True, True, 8))
    assert start.tolist() == [0.0, 1.0, 3.0, 0.0, 8.0]
