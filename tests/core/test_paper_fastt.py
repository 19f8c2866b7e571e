"""What FastT's paper claims, claim by claim (Middleware 2020, sections 5.1 and 5.2)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.placement import fastt_os_dpos
from stepd.core.placement.fastt_dpos import Settings, dpos
from stepd.core.placement.ranks import critical_path, op_seconds, transfer_seconds, upward_ranks
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.split_problem import SplitCosts, split_problem, splittable
from stepd.core.placement.split_tables import CUT, PART
from stepd.core.prepared import prepare
from stepd.core.problem import SplitChoice
from stepd.core.strategy import Split

PUBLISHED = Settings(memory_factor=np.inf, link_aware=False, defer=False)


def links(devices, seconds_per_byte=1.0, latency=0.0):
    return [(a, b, 1 / seconds_per_byte, latency) for a in range(devices) for b in range(devices) if a != b]


def test_rank_is_the_longest_path_with_the_largest_costs_and_the_critical_path_follows_it(lab):
    """rank_u(o_i) = w_i + max over successors of (c_ij + rank_u(o_j)), w and c the maxima over devices and pairs."""
    edges = [(0, 1, 0, 3), (0, 2, 0, 3), (1, 3, 0, 1), (2, 3, 0, 5)]
    problem = lab.make_problem([[1, 2], [4, 3], [1, 1], [2, 2]], edges, [(0, 1, 1.0, 0.0), (1, 0, 2.0, 0.5)], [99, 99])
    prepared = prepare(problem)
    rank = upward_ranks(prepared.tables, op_seconds(prepared, "max"), transfer_seconds(prepared, "max"))
    assert rank.tolist() == [2 + 3 + 8, 4 + 1 + 2, 1 + 5 + 2, 2]
    assert critical_path(prepared.tables, rank).tolist() == [0, 2, 3]


def test_the_critical_path_goes_to_the_device_with_the_smallest_average_time(lab):
    """Chain of three and an op beside it; device 1 runs the chain in less time."""
    edges = [(0, 1, 0, 1), (1, 2, 0, 1)]
    problem = lab.make_problem([[3, 2], [3, 2], [3, 4], [1, 1]], edges, links(2), [99, 99])
    sequence = dpos(prepare(problem), PUBLISHED)
    assert sequence.placement[:3].tolist() == [1, 1, 1]
    assert sequence.placement[3] == 0


def test_a_full_critical_path_device_is_followed_by_another(lab):
    """Section 5.1: when its memory is full, as much as possible of the rest goes to another critical-path device."""
    edges = [(0, 1, 0, 0), (1, 2, 0, 0), (2, 3, 0, 0)]
    problem = lab.make_problem([[1, 2]] * 4, edges, links(2), [20, 99], resident=[10] * 4)
    sequence = dpos(prepare(problem), replace(PUBLISHED, memory_factor=1.0))
    assert sequence.placement.tolist() == [0, 0, 1, 1]
    assert sequence.memory_overflows == 0


def test_an_op_is_inserted_into_an_idle_slot_that_is_long_enough(lab):
    """A (2 s) sends for 4 s to B on device 0. Of C (2 s), D (1 s) and E (4 s), which run there too, E and C fit into the wait."""
    inf = float("inf")
    seconds = [[inf, 2], [5, inf], [2, inf], [1, inf], [4, inf]]
    problem = lab.make_problem(seconds, [(0, 1, 0, 4)], links(2), [99, 99])
    prepared = prepare(problem)
    sequence = dpos(prepared, PUBLISHED)
    execution = np.argsort(sequence.priority).tolist()
    # E has the largest rank of the three and takes [0, 4); C takes [4, 6), B starts at 6; D only fits behind B.
    assert [op for op in execution if op] == [4, 2, 1, 3]
    assert sequence.seconds == 12


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_theorem_1_dpos_stays_within_twice_the_optimum_and_the_longest_transfers(data, lab):
    """w_DPOS <= 2 w_opt + C_max: with sum(w of a chain) <= w_opt and sum(w) <= |D| w_opt, as in the proof."""
    n, devices = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    seconds = [[data.draw(st.sampled_from([0.5, 1.0, 2.0, 5.0]))] * devices for _ in range(n)]
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    chosen = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * n)) if pairs else []
    edges = [(a, b, 0, data.draw(st.sampled_from([0, 1, 3]))) for a, b in chosen]
    problem = lab.make_problem(seconds, edges, links(devices), [10**9] * devices)
    prepared = prepare(problem)
    work, sizes = op_seconds(prepared, "max"), transfer_seconds(prepared, "max")
    chain = upward_ranks(prepared.tables, work, np.zeros_like(sizes)).max()
    longest_transfers = upward_ranks(prepared.tables, np.zeros_like(work), sizes).max(initial=0.0)
    assert dpos(prepared, PUBLISHED).seconds <= chain + work.sum() / devices + longest_transfers + 1e-9


def wide(lab, big=8.0, devices=2):
    """source -> big op -> sink, and what the hook offers for the big op."""
    edges = [(0, 1, 0, 100), (1, 2, 0, 100)]
    problem = lab.make_problem([[0.1] * devices, [big] * devices, [0.1] * devices], edges, links(devices, 1e-3), [10**6] * devices)
    return replace(problem, split_choices=(SplitChoice(1, "batch", 4, (100,), (100,)),))


FREE = SplitCosts(overhead_seconds=0.0, copy_bytes_per_second=1e12)


def test_split_operation_makes_the_graph_of_algorithm_2(lab):
    """A split node per predecessor, connected to n parts, which a concatenate node joins for every successor."""
    base = splittable(wide(lab))
    split = split_problem(base, [Split(1, "batch", 2)], FREE)
    tables = split.prepared.tables
    assert split.parts == ((3, 4),)
    assert split.kind[3:].tolist() == [PART, PART, CUT]
    reads = {op: sorted(tables.output_op[tables.input[a:b]].tolist()) for op, (a, b) in enumerate(spans(tables.input_pointer))}
    assert reads == {0: [], 1: [3, 4], 2: [1], 3: [5], 4: [5], 5: [0]}
    assert tables.seconds[3].tolist() == [4.0, 4.0]
    assert tables.output_bytes[tables.input[tables.input_pointer[3]]] == 50


def spans(pointer):
    return zip(pointer[:-1].tolist(), pointer[1:].tolist(), strict=True)


def test_os_dpos_splits_the_long_op_over_both_devices(lab):
    problem = wide(lab)
    options = PlanOptions(parameters={"overhead_seconds": 0.0})
    strategy = fastt_os_dpos.place(problem, options)
    [split] = strategy.splits
    assert (split.op, split.axis, split.parts, sorted(split.devices)) == (1, "batch", 2, [0, 1])
    assert strategy.predicted_step_seconds == pytest.approx(0.1 + 4.0 + 0.1 + 0.1, abs=0.05)


def test_os_dpos_stops_at_the_first_op_that_does_not_help(lab):
    """Algorithm 2, lines 9-13. The longest op is not worth its overhead; the next would be, and is not looked at."""
    edges = [(0, 1, 0, 10**6), (1, 2, 0, 10), (2, 3, 0, 10)]
    seconds = [[0.1] * 2, [9.0] * 2, [8.0] * 2, [0.1] * 2]
    problem = lab.make_problem(seconds, edges, links(2, 1e-4), [10**9] * 2)
    problem = replace(
        problem,
        split_choices=(SplitChoice(1, "batch", 2, (10**6,), (10,)), SplitChoice(2, "batch", 2, (10,), (10,))),
    )
    published = {"patience": 1, "accept": "schedule", "overhead_seconds": 0.0}
    assert fastt_os_dpos.place(problem, PlanOptions(parameters=published)).splits == ()
    patient = fastt_os_dpos.place(problem, PlanOptions(parameters={**published, "patience": 2}))
    assert [split.op for split in patient.splits] == [2]


def test_without_anything_to_split_os_dpos_is_dpos(lab):
    problem = replace(wide(lab), split_choices=())
    strategy = fastt_os_dpos.place(problem, PlanOptions())
    assert strategy.splits == ()
    assert strategy.placement.tolist() == dpos(prepare(problem), Settings()).placement.tolist()
