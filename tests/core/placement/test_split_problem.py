"""Split problems: nothing is lost, joins and cuts cancel, and a strategy with splits costs what it says."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.errors import StrategyError
from stepd.core.placement import fastt_os_dpos
from stepd.core.placement.fastt_dpos import dpos
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.split_answer import part_placement, part_priority, read_off, simulate_parts, simulate_split
from stepd.core.placement.split_problem import SplitCosts, split_problem, splittable
from stepd.core.placement.split_tables import CUT, PART, WHOLE
from stepd.core.problem import SplitChoice
from stepd.core.simulator import simulate_placement
from stepd.core.strategy import Split, Strategy

FREE = SplitCosts(overhead_seconds=0.0, copy_bytes_per_second=1e15)
MODEST = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def chain(lab, adds=False):
    """source -> a -> b -> sink on two devices; a and b can be split on the batch axis."""
    links = [(0, 1, 1000.0, 0.0), (1, 0, 1000.0, 0.0)]
    edges = [(0, 1, 0, 80), (1, 2, 0, 60), (2, 3, 0, 40)]
    problem = lab.make_problem([[0.0] * 2, [4.0] * 2, [6.0] * 2, [0.0] * 2], edges, links, [10**6] * 2)
    choices = (SplitChoice(1, "batch", 4, (80,), (60,), adds), SplitChoice(2, "batch", 4, (60,), (40,)))
    return replace(problem, split_choices=choices)


def rows(pointer, items):
    return [items[a:b].tolist() for a, b in itertools.pairwise(pointer)]


def readers_of(split, op):
    tables = split.prepared.tables
    outputs = range(tables.output_pointer[op], tables.output_pointer[op + 1])
    return sorted(int(r) for o in outputs for r in tables.reader[tables.reader_pointer[o] : tables.reader_pointer[o + 1]])


def test_a_join_followed_by_a_cut_on_the_same_axis_cancels(lab):
    split = split_problem(splittable(chain(lab)), [Split(1, "batch", 2), Split(2, "batch", 2)], FREE)
    (a0, a1), (b0, b1) = split.parts
    assert (split.kind == CUT).sum() == 1  # of the source only
    assert [readers_of(split, op) for op in (a0, a1)] == [[b0], [b1]]  # nobody needs the whole: it is not made
    assert split.prepared.tables.seconds[1].tolist() == [0.0, 0.0]
    assert readers_of(split, 1) == []


def test_parts_wait_for_parts_also_through_groups(lab):
    edges = [(0, 1, 0, 80), (0, 3, 0, 80), (1, 2, -1, 0), (2, 3, -1, 0), (2, 4, -1, 0)]
    links = [(0, 1, 1e3, 0.0), (1, 0, 1e3, 0.0)]
    problem = lab.make_problem([[0.0] * 2, [4.0] * 2, [0.0] * 2, [6.0] * 2, [1.0] * 2], edges, links, [10**6] * 2)
    types = ("A", "A", "NoOp", "A", "A")
    choices = tuple(SplitChoice(op, "batch", 4, (80,), (60,)) for op in (1, 3))
    both = [Split(op, "batch", 2) for op in (1, 3)]
    split = split_problem(splittable(replace(problem, op_types=types, split_choices=choices)), both, FREE)
    (a0, a1), (b0, b1) = split.parts
    assert [readers_of(split, op) for op in (a0, a1, 2)] == [[1, b0], [1, b1], [4]]  # the group waits on for the last op
    alone = lab.make_problem(problem.seconds[:4], edges[:4], links, [10**6] * 2)
    split = split_problem(splittable(replace(alone, op_types=types[:4], split_choices=choices)), both, FREE)
    (a0, a1), (b0, b1) = split.parts
    assert [readers_of(split, op) for op in (a0, a1, 1, 2)] == [[b0], [b1], [], []]  # nobody waits for it: it is not run


@pytest.mark.parametrize(
    ("adds", "second"), [(True, Split(2, "batch", 2)), (False, Split(2, "batch", 3)), (False, Split(2, "batch", 2, weights=(1, 3)))]
)
def test_it_does_not_cancel_after_a_sum_nor_between_unlike_parts(lab, adds, second):
    split = split_problem(splittable(chain(lab, adds)), [Split(1, "batch", 2), second], FREE)
    assert (split.kind == CUT).sum() == 2
    assert all(readers_of(split, part) == [1] for part in split.parts[0])


def test_two_parts_on_two_devices_take_half_the_time(lab):
    problem = chain(lab)
    order = np.arange(4, dtype=np.int32)
    splits = (Split(1, "batch", 2, (0, 1)), Split(2, "batch", 2, (0, 1)))
    strategy = Strategy(problem.name, np.zeros(4, dtype=np.int32), order, 0.0, splits)
    # 80 / 2 bytes go over, 60 / 2 stay where they are, 40 / 2 come back.
    assert simulate_split(problem, strategy, FREE).makespan == pytest.approx(0.04 + 2 + 3 + 0.02)


def test_parts_of_unequal_weight_get_unequal_shares(lab):
    split = split_problem(splittable(chain(lab)), [Split(1, "batch", 2, weights=(1.0, 3.0))], FREE)
    small, large = split.parts[0]
    assert split.prepared.tables.seconds[[small, large], 0].tolist() == [1.0, 3.0]


@pytest.mark.parametrize(
    "split", [Split(1, "rows", 2), Split(1, "batch", 5), Split(3, "batch", 2), Split(1, "batch", 2, weights=(1,))]
)
def test_a_split_that_is_not_offered_is_refused_by_name(lab, split):
    with pytest.raises(StrategyError, match=f"op{split.op}"):
        split_problem(splittable(chain(lab)), [split], FREE)


@st.composite
def splittable_problems(draw, problems):
    """A random problem with choices for some of its ops."""
    problem = draw(problems())
    choices = []
    for op in range(problem.n_ops):
        if draw(st.booleans()):
            into = [e for e in range(len(problem.edge_dst)) if problem.edge_dst[e] == op and problem.edge_output[e] >= 0]
            cut = tuple(draw(st.sampled_from([0, 6])) for _ in into)
            axis = draw(st.sampled_from(["batch", "channels"]))
            choices.append(SplitChoice(op, axis, draw(st.integers(2, 4)), cut, (), draw(st.booleans())))
    return replace(problem, split_choices=tuple(choices))


@MODEST
@given(data=st.data())
def test_any_list_of_splits_keeps_the_work_and_closes_no_cycle(data, lab):
    problem = data.draw(splittable_problems(lab.problems))
    wanted = [c for c in problem.split_choices if data.draw(st.booleans())]
    splits = [Split(c.op, c.axis, data.draw(st.integers(2, c.max_parts))) for c in wanted]
    split = split_problem(splittable(problem), splits, FREE)
    tables = split.prepared.tables
    assert sorted(tables.topological.tolist()) == list(range(len(split.origin)))
    parts = split.kind == PART
    for chosen, ops in zip(splits, split.parts, strict=True):
        assert np.allclose(tables.seconds[list(ops)].sum(axis=0), problem.seconds[chosen.op])
        assert set(split.origin[list(ops)]) == {chosen.op}
    untouched = [op for op in range(problem.n_ops) if op not in {s.op for s in splits}]
    assert np.array_equal(tables.seconds[untouched], problem.seconds[untouched])
    assert tables.resident.sum() == problem.resident_bytes.sum()
    assert parts.sum() == sum(s.parts for s in splits) and (split.kind[: problem.n_ops] == WHOLE).all()
    # Both directions of the edges say the same.
    reader_rows, input_rows = rows(tables.reader_pointer, tables.reader), rows(tables.input_pointer, tables.input)
    there = sorted((o, op) for o, ops in enumerate(reader_rows) for op in ops)
    back = sorted((o, op) for op, outputs in enumerate(input_rows) for o in outputs)
    assert there == back


@MODEST
@given(data=st.data())
def test_os_dpos_answers_truly_on_any_splittable_problem(data, lab):
    problem = data.draw(splittable_problems(lab.problems))
    strategy = fastt_os_dpos.place(problem, PlanOptions(max_work=12, parameters={"overhead_seconds": 5e-6}))
    assert strategy.predicted_step_seconds == pytest.approx(simulate_split(problem, strategy).makespan)
    for split in strategy.splits:
        assert len(split.devices) == split.parts
        assert np.isfinite(problem.seconds[split.op, list(split.devices)]).all()
    unsplit = fastt_os_dpos.place(replace(problem, split_choices=()), PlanOptions())
    assert unsplit.predicted_step_seconds == simulate_placement(problem, unsplit.placement, unsplit.priority).step_seconds
    better = strategy.predicted_step_seconds <= unsplit.predicted_step_seconds
    assert better or (strategy.planner["feasible"] and not unsplit.planner["feasible"])


@MODEST
@given(data=st.data())
def test_parts_take_the_turn_of_their_op_and_give_it_theirs(data, lab):
    problem = data.draw(splittable_problems(lab.problems))
    strategy = fastt_os_dpos.place(problem, PlanOptions(max_work=12))
    split = split_problem(splittable(problem), strategy.splits, SplitCosts())
    priority = np.array(data.draw(st.permutations(range(problem.n_ops))), dtype=np.int32)
    full = part_priority(split, priority)
    sooner = np.lexsort((split.kind, priority[split.origin]))  # parts of an op in their own order
    assert full[sooner].tolist() == list(range(len(full)))
    position = np.array(data.draw(st.permutations(range(len(full)))), dtype=np.int32)
    _, turns, _ = read_off(split, part_placement(splittable(problem), split, strategy.placement, strategy.splits), position)
    first = [
        min((position[part] for chosen, parts in zip(split.splits, split.parts, strict=True) if chosen.op == op for part in parts),
            default=position[op])
        for op in range(problem.n_ops)
    ]  # fmt: skip
    assert turns.tolist() == np.argsort(np.argsort(first)).tolist()


def plainly(problem, patience, simulated):
    """OS-DPOS without any of its shortcuts: every way after the other, each scheduled and simulated in full."""
    search = fastt_os_dpos._Search(problem, PlanOptions())
    costs = SplitCosts()

    def answer(splits):
        split = split_problem(search.base, tuple(replace(s, devices=()) for s in splits), costs)
        sequence = dpos(split.prepared, search.settings)
        placement, priority, placed = read_off(split, sequence.placement, sequence.priority)
        strategy = Strategy(problem.name, placement, priority, np.inf, placed)
        trace = simulate_parts(search.base, split, strategy)
        fits = bool(np.all(trace.peak <= split.prepared.tables.memory))
        return replace(strategy, predicted_step_seconds=trace.makespan, planner={"feasible": fits}), sequence.seconds

    def beats(mine, theirs):
        (a, own), (b, other) = mine, theirs
        if own >= other or not simulated:
            return own < other
        if a.planner["feasible"] != b.planner["feasible"]:
            return a.planner["feasible"]
        return a.predicted_step_seconds < b.predicted_step_seconds

    best, failed = answer(()), 0
    for op in search.candidates(best[0]):
        found = best
        for way in search.ways(op):
            tried = answer((*best[0].splits, way))
            found = tried if beats(tried, found) else found
        failed = failed + 1 if found is best else 0
        best = found
        if failed >= patience:
            break
    return best


@MODEST
@given(data=st.data())
def test_reschedules_with_limits_kept_costs_and_threads_are_full_reschedules(data, lab):
    problem = data.draw(splittable_problems(partial(lab.problems, memory=(30, 10**6))))
    patience, accept = data.draw(st.integers(1, 3)), data.draw(st.sampled_from(["simulated", "schedule"]))
    expected, own_seconds = plainly(problem, patience, accept == "simulated")
    with ThreadPoolExecutor(2) as pool:
        for run_all in (map, pool.map):
            options = PlanOptions(parameters={"patience": patience, "accept": accept}, run_all=run_all)
            found = fastt_os_dpos.place(problem, options)
            assert found.splits == expected.splits
            assert found.placement.tolist() == expected.placement.tolist()
            assert found.priority.tolist() == expected.priority.tolist()
            assert found.predicted_step_seconds == expected.predicted_step_seconds
            assert found.planner["own_seconds"] == own_seconds


def test_constants_are_not_sent_and_equal_reads_of_a_variable_once(lab):
    """const, variable and its three reads -> two products and the gradient of one of them."""
    const, variable, read, again, other, first, second, third = range(8)
    edges = [(variable, read, 0, 8), (variable, again, 0, 8), (variable, other, 0, 8), (const, other, -1, 0), (const, first, 0, 40),
             (read, first, 0, 500), (again, second, 0, 500), (first, second, 0, 80), (other, third, 0, 500)]  # fmt: skip
    problem = lab.make_problem([[1.0] * 2] * 8, edges, [(0, 1, 1e3, 0.0), (1, 0, 1e3, 0.0)], [10**6] * 2)
    types = ("Const", "VarHandleOp", "ReadVariableOp", "ReadVariableOp", "ReadVariableOp", "A", "A", "A")
    choices = [(first, (0, 0)), (second, (0, 80)), (third, (0,))]
    offers = tuple(SplitChoice(op, "batch", 4, cut, (80,)) for op, cut in choices)
    problem = replace(problem, op_types=types, split_choices=offers)
    split = split_problem(splittable(problem), [Split(op, "batch", 2, (0, 1)) for op, _ in choices], FREE)
    of_first, of_second, of_third = split.parts
    assert readers_of(split, read) == sorted([*of_first, *of_second]) and readers_of(split, again) == []
    assert readers_of(split, other) == sorted(of_third), "it waits for something else"
    assert readers_of(split, const) == [other]
    large = replace(problem, edge_bytes=np.where(problem.edge_bytes == 40, 10**6, problem.edge_bytes))
    split = split_problem(splittable(large), [Split(first, "batch", 2)], FREE)
    assert readers_of(split, const) == sorted([other, *split.parts[0]])
