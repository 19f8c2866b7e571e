"""What Celeritas' paper claims, claim by claim (sections 4.2, 5.1 and 5.2)."""

from __future__ import annotations

import graphlib
import itertools

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.placement.celeritas_fusion import communication_ratio, device_masks, fuse, memory_need, optimal_breakpoints
from stepd.core.placement.celeritas_order import cpd_topo, critical_lengths, dfs_topo
from stepd.core.placement.celeritas_place import adjusting_placement, order_place
from stepd.core.placement.partial_schedule import Rules, limits_of
from stepd.core.placement.ranks import transfer_seconds
from stepd.core.prepared import prepare

MODEST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
FREE_LINKS = Rules(contention=False, insertion=True, gaps=64)


def links(devices, seconds_per_byte=1.0):
    return [(a, b, 1 / seconds_per_byte, 0.0) for a in range(devices) for b in range(devices) if a != b]


def test_figure_3_halving_dfs_topo_cuts_no_edge_where_breadth_first_cuts_four(lab):
    """Four sources with a reader each, on two devices, half of the order on each."""
    edges = [(k, 4 + k, 0, 1) for k in range(4)]
    prepared = prepare(lab.make_problem([[1, 1]] * 8, edges, links(2), [99, 99]))

    def cut_edges(order):
        half = {op: place // 4 for place, op in enumerate(order.tolist())}
        return sum(half[src] != half[dst] for src, dst, _, _ in edges)

    assert cut_edges(prepared.tables.topological) == 4
    assert cut_edges(dfs_topo(prepared)) == 0


def test_cpd_topo_goes_along_the_critical_path_first(lab):
    """Equations 2 and 3 by hand, then the order: at every step the reader with the longest path through it."""
    edges = [(0, 1, 0, 1), (0, 2, 0, 4), (1, 3, 0, 1), (2, 3, 0, 2)]
    prepared = prepare(lab.make_problem([[1, 1], [2, 2], [3, 3], [1, 1]], edges, links(2), [99, 99]))
    # Output 0 of op 0 is one output, sent once: its size is the largest of its edges, 4.
    assert critical_lengths(prepared).tolist() == [11, 1 + 4 + 2 + 1 + 1, 11, 11]
    assert cpd_topo(prepared).tolist() == [0, 2, 1, 3]


@MODEST
@given(data=st.data())
def test_both_orders_are_topological(data, lab):
    problem = data.draw(lab.problems())
    prepared = prepare(problem)
    for order in (dfs_topo(prepared), cpd_topo(prepared)):
        position = np.empty(problem.n_ops, dtype=int)
        position[order] = np.arange(problem.n_ops)
        assert sorted(order.tolist()) == list(range(problem.n_ops))
        assert (position[problem.edge_src] < position[problem.edge_dst]).all()


@MODEST
@given(data=st.data())
def test_lemma_2_merging_neighbours_of_the_order_never_closes_a_cycle(data, lab):
    problem = data.draw(lab.problems())
    _, cluster = fuse(prepare(problem), reach=data.draw(st.integers(1, 6)), memory_share=data.draw(st.sampled_from([0.1, 1.0])))
    before = {int(c): set() for c in cluster}
    for src, dst in zip(problem.edge_src, problem.edge_dst, strict=True):
        if cluster[src] != cluster[dst]:
            before[int(cluster[dst])].add(int(cluster[src]))
    tuple(graphlib.TopologicalSorter(before).static_order())  # raises CycleError


@MODEST
@given(data=st.data())
def test_equation_6_finds_the_least_cost_of_equation_4_over_all_breakpoints(data, lab):
    """The recursion of Equation 5 against Equation 4 as it is written, over every way to cut the sequence."""
    problem = data.draw(lab.problems(max_ops=8))
    prepared = prepare(problem)
    order, n = cpd_topo(prepared), problem.n_ops
    transfer = transfer_seconds(prepared, "mean")
    memory = memory_need(prepared)
    reach, limit = data.draw(st.integers(1, 8)), data.draw(st.sampled_from([5.0, 20.0, 1e9]))
    allowed = np.isfinite(prepared.group_seconds)[prepared.tables.group]
    masks = device_masks(np.isfinite(prepared.group_seconds))[prepared.tables.group]
    c = matrix_of_edges(prepared, order, transfer)

    def cost(i, j):  # Equation 4: from the run [i, j) to everything behind
        return c[i:j, j:].sum()

    def holds(i, j):
        run = order[i:j]
        return j - i == 1 or (j - i <= reach and memory[run].sum() <= limit and allowed[run].all(axis=0).any())

    def total(breaks):
        return sum(cost(i, j) for i, j in itertools.pairwise(breaks))

    ways = [(0, *inner, n) for k in range(n) for inner in itertools.combinations(range(1, n), k)]
    best = min(total(w) for w in ways if all(holds(i, j) for i, j in itertools.pairwise(w)))
    found = optimal_breakpoints(prepared.tables, order, transfer, memory, masks, reach, limit).tolist()
    assert found[0] == 0 and found[-1] == n
    assert all(holds(i, j) for i, j in itertools.pairwise(found))
    assert abs(total(found) - best) < 1e-9


def matrix_of_edges(prepared, order, transfer):
    """c[k, m] between the ops at places k and m of the order."""
    tables, n = prepared.tables, len(order)
    position = np.empty(n, dtype=int)
    position[order] = np.arange(n)
    c = np.zeros((n, n))
    for o in range(len(tables.output_op)):
        for reader in tables.reader[tables.reader_pointer[o] : tables.reader_pointer[o + 1]]:
            c[position[tables.output_op[o]], position[reader]] += transfer[o]
    return c


def test_fusion_lowers_the_communication_ratio(lab):
    """Equation 1, and Table 2's effect: a long chain in three runs keeps two of its edges."""
    n = 9
    edges = [(k, k + 1, 0, 10) for k in range(n - 1)]
    prepared = prepare(lab.make_problem([[1, 1]] * n, edges, links(2), [10**6] * 2))
    assert communication_ratio(prepared) == 8 * 10 / 9
    _, cluster = fuse(prepared, reach=3)
    crossing = sum(cluster[src] != cluster[dst] for src, dst, _, _ in edges)
    assert (int(cluster.max()) + 1, crossing) == (3, 2)


def adjust(problem):
    prepared = prepare(problem)
    state = adjusting_placement(
        prepared.tables, limits_of(prepared, 1.0), FREE_LINKS, cpd_topo(prepared), transfer_seconds(prepared, "mean")
    )
    return state.placement.tolist(), int(state.overflow[0])


def test_equation_9_moves_only_when_more_than_back_cost_is_won(lab):
    """Op 1 could start 5 s sooner on the other device, and would have to send back what op 2 reads."""
    seconds = [[5, 5], [2, 2], [1, 1]]
    cheap = lab.make_problem(seconds, [(0, 2, 0, 4), (1, 2, 0, 4)], links(2), [99, 99])
    assert adjust(cheap)[0][:2] == [0, 1]
    dear = lab.make_problem(seconds, [(0, 2, 0, 6), (1, 2, 0, 5)], links(2), [99, 99])
    assert adjust(dear)[0] == [0, 0, 0]


def test_a_full_device_is_left_and_when_all_are_full_the_roomiest_takes_it(lab):
    """Section 5.2: the next device with room; best effort when there is none, and it is said."""
    edges = [(k, k + 1, 0, 0) for k in range(3)]
    roomy = lab.make_problem([[1, 1]] * 4, edges, links(2), [25, 25], resident=[10] * 4)
    assert adjust(roomy) == ([0, 0, 1, 1], 0)
    placement, overflows = adjust(lab.make_problem([[1, 1]] * 5, [*edges, (3, 4, 0, 0)], links(2), [25, 29], resident=[10] * 5))
    assert placement == [0, 0, 1, 1, 1]
    assert overflows == 1


def test_order_place_fills_one_device_after_the_other(lab):
    edges = [(k, k + 1, 0, 0) for k in range(5)]
    prepared = prepare(lab.make_problem([[1, 1, 1]] * 6, edges, links(3), [25, 35, 99], resident=[10] * 6))
    state = order_place(prepared.tables, limits_of(prepared, 1.0), FREE_LINKS, cpd_topo(prepared))
    assert state.placement.tolist() == [0, 0, 1, 1, 1, 2]
