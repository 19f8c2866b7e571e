"""Data parallelism by splitting: found from the hook's offers, uneven on unequal devices, large layers left whole; what steps
with split ops teach about whole ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepd.core.assembly import Situation, SplitOffer, assemble
from stepd.core.cost.models import CostModels
from stepd.core.cost.observation import DeviceObservation, InParts, StepObservation, of_whole_ops
from stepd.core.errors import StrategyError
from stepd.core.graph import Node
from stepd.core.placement import replicate
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.split_problem import SplitCosts, split_problem, splittable
from stepd.core.planning import begin, run
from stepd.core.problem import SplitChoice
from stepd.core.session_links import SessionDevice
from stepd.core.strategy import Split, Strategy

X, W, V, FIRST, SECOND, DW, DV, SUM = range(8)


def network(lab, second_device=1.0, large=0):
    """x, w, v -> first(x, w) -> second(first, v) -> gradients of w and v, summed up in an update."""
    heavy = {FIRST: 4.0, SECOND: 4.0, DW: 4.0, DV: 4.0}
    seconds = [[heavy.get(k, 0.01), heavy.get(k, 0.01) * second_device] for k in range(8)]
    b, v = 1000, large or 1000
    edges = [(X, FIRST, 0, b), (W, FIRST, 0, 1000), (FIRST, SECOND, 0, b), (V, SECOND, 0, v), (SECOND, DV, 0, b), (FIRST, DV, 0, b),
             (SECOND, DW, 0, b), (X, DW, 0, b), (DW, SUM, 0, 1000), (DV, SUM, 0, v)]  # fmt: skip
    links = [(0, 1, 1e6, 0.0), (1, 0, 1e6, 0.0)]
    problem = lab.make_problem(seconds, edges, links, [10**12] * 2)
    offers = [(FIRST, (b, 0), b, False), (SECOND, (b, 0), b, False), (DV, (b, b), v, True), (DW, (b, b), 1000, True)]
    return replace(problem, split_choices=tuple(SplitChoice(op, "batch", 8, cut, (out,), adds) for op, cut, out, adds in offers))


def test_two_equal_devices_share_a_step(lab):
    found = replicate.place(network(lab), PlanOptions())
    assert len(found.splits) == 4 and {split.devices for split in found.splits} == {(0, 1)}
    assert all(split.weights == () for split in found.splits)
    assert found.predicted_step_seconds == pytest.approx(8.0, rel=0.02)
    assert found.planner["feasible"] and found.planner["parts"] == 2


@pytest.mark.parametrize(("gain", "feasible", "one_stays"), [(0.99, True, False), (0.97, True, True), (0.99, False, True)])
def test_all_variables_lie_on_one_device_only_where_that_gains_clearly(lab, gain, feasible, one_stays):
    one, shared = (
        replace(replicate.place(network(lab), PlanOptions()), predicted_step_seconds=seconds, planner={"feasible": fits})
        for seconds, fits in ((gain, True), (1.0, feasible))
    )
    assert replicate._worth_one_home([one, shared]) == [one, shared][0 if one_stays else 1 :]
    assert replicate._worth_one_home([one, None]) == [one] and replicate._worth_one_home([None, shared]) == [shared]


def test_unequal_devices_get_unequal_parts(lab):
    found = replicate.place(network(lab, second_device=3.0), PlanOptions())
    assert found.splits[0].weights == (0.75, 0.25)
    assert found.predicted_step_seconds == pytest.approx(12.0, rel=0.02)


def test_a_layer_whose_weights_take_longer_to_send_than_to_compute_stays_whole(lab):
    found = replicate.place(network(lab, large=20_000_000), PlanOptions())
    assert {split.op for split in found.splits} == {FIRST, DW}
    assert found.predicted_step_seconds == pytest.approx(12.0, rel=0.05)


CONV, MID, DENSE1, DENSE2, DX2, DW2, DX1, DW1, DCONV, WC, W1, W2, UPC, UP1, UP2, TERMS = range(16)


def behind_convolutions(lab, weight, dense=0.3):
    """A convolution, an op without work, two dense layers, and the gradients of all; weights share a device with their updates."""
    heavy = {CONV: 8.0, DCONV: 8.0} | dict.fromkeys((DENSE1, DENSE2, DX2, DW2, DX1, DW1), dense)
    seconds = [[heavy.get(k, 0.01)] * 2 for k in range(16)]
    a = 1000
    edges = [(WC, CONV, 0, 10), (CONV, MID, 0, a), (MID, DENSE1, 0, a), (W1, DENSE1, 0, weight), (DENSE1, DENSE2, 0, a),
             (W2, DENSE2, 0, weight), (DENSE2, DX2, 0, a), (W2, DX2, 0, weight), (DENSE2, DW2, 0, a), (DENSE1, DW2, 0, a),
             (DX2, DX1, 0, a), (W1, DX1, 0, weight), (DX2, DW1, 0, a), (MID, DW1, 0, a), (DX1, DCONV, 0, a),
             (DCONV, UPC, 0, 10), (DW1, TERMS, 0, weight), (TERMS, UP1, 0, weight), (DW2, UP2, 0, weight)]  # fmt: skip
    groups = [-1] * 16
    for number, members in enumerate([(WC, UPC), (W1, UP1), (W2, UP2)]):
        for op in members:
            groups[op] = number
    resident = [weight if k in (W1, W2) else 0 for k in range(16)]
    links = [(0, 1, 1e6, 0.0), (1, 0, 1e6, 0.0)]
    problem = lab.make_problem(seconds, edges, links, [10**12] * 2, resident=resident, colocation=groups)
    offers = [(CONV, (0,), a, False), (MID, (a,), a, False), (DENSE1, (a, 0), a, False), (DENSE2, (a, 0), a, False),
              (DX2, (a, 0), a, False), (DW2, (a, a), weight, True), (DX1, (a, 0), a, False), (DW1, (a, a), weight, True),
              (TERMS, (-1,), weight, True), (DCONV, (a,), 10, True)]  # fmt: skip
    return replace(problem, split_choices=tuple(SplitChoice(op, "batch", 8, cut, (out,), adds) for op, cut, out, adds in offers))


def test_large_layers_behind_convolutions_are_model_parallel_and_the_convolutions_data_parallel(lab):
    problem = behind_convolutions(lab, weight=20_000_000)
    found = replicate.place(problem, PlanOptions())
    split = {s.op for s in found.splits}
    assert {CONV, DCONV} <= split and not split & {DENSE1, DENSE2, DX1, DX2, DW1, DW2, TERMS}
    for layer, weight in ((DENSE1, W1), (DENSE2, W2), (DX1, W1), (DX2, W2), (DW1, W1), (DW2, W2)):
        assert found.placement[layer] == found.placement[weight], "a large weight would be sent"
    assert found.predicted_step_seconds < 0.7 * 18.0
    for weight in (100, 600_000):  # of the latter, whole layers would save a hundredth of the step
        small = replicate.place(behind_convolutions(lab, weight=weight), PlanOptions())
        assert {s.op for s in small.splits} == {choice.op for choice in problem.split_choices}


def test_large_layers_with_much_to_compute_are_cut_along_their_weights(lab):
    """Whole, they would keep one device waiting; cut along the batch, all of each weight would be sent, and its gradient."""
    weight, a = 6_000_000, 1000
    problem = behind_convolutions(lab, weight, dense=4.0)
    ways = {"1": ((0, weight), a, False), "inner": ((a, weight), a, True)}
    offers = [
        SplitChoice(op, axis, 8, cut, (out,), adds) for op in (DENSE1, DENSE2, DX1, DX2) for axis, (cut, out, adds) in ways.items()
    ]
    offers += [SplitChoice(op, axis, 8, cut, (weight,), False) for op in (DW1, DW2) for axis, cut in (("0", (0, a)), ("1", (a, 0)))]
    found = replicate.place(replace(problem, split_choices=(*problem.split_choices, *offers)), PlanOptions())
    axes = {s.op: s.axis for s in found.splits}
    assert axes[CONV] == axes[DCONV] == "batch" and TERMS not in axes
    for forward, back, gradient in ((DENSE1, DX1, DW1), (DENSE2, DX2, DW2)):
        # One dimension of the weight is cut: what one product adds up is what the other puts together.
        assert (axes[forward], axes[back], axes[gradient]) in {("1", "inner", "1"), ("inner", "1", "0")}
    assert found.placement[TERMS] == found.placement[W1], "a gradient would be sent and come back"
    assert found.predicted_step_seconds < 0.9 * replicate.place(problem, PlanOptions()).predicted_step_seconds


def test_parts_get_an_order_where_that_helps(lab):
    """A part of `short` and one of `long` wait on each device; only behind `long` there is work for another device."""
    source, short, long, behind, end = range(5)
    seconds = [[0.01] * 3, [2.0] * 3, [2.0] * 3, [float("inf"), float("inf"), 6.0], [float("inf"), float("inf"), 0.01]]
    edges = [(source, short, 0, 8), (source, long, 0, 8), (long, behind, 0, 8), (short, end, 0, 8), (behind, end, 0, 8)]
    links = [(i, j, 1e9, 0.0) for i in range(3) for j in range(3) if i != j]
    problem = lab.make_problem(seconds, edges, links, [10**12] * 3)
    offers = tuple(SplitChoice(op, "batch", 8, (8,), (8,), False) for op in (short, long))
    problem = replace(problem, split_choices=offers)
    splits = tuple(Split(op, "batch", 2, (0, 1)) for op in (short, long))
    placement = np.array([0, 2, 2, 2, 2], dtype=np.int32)  # joined where nothing else runs
    natural = Strategy("p", placement, np.arange(5, dtype=np.int32), 8.0, splits, {"parts": 2})
    (ordered,) = replicate.in_order(splittable(problem), natural)
    assert not [*replicate.in_order(splittable(problem), replace(natural, predicted_step_seconds=7.1))], "not worth keeping"
    assert ordered.priority[long] < ordered.priority[short]
    assert ordered.predicted_step_seconds == pytest.approx(7.0, rel=0.01)


def test_a_live_plan_cannot_hold_back_weights_that_are_sent(lab):
    """`v` costs next to nothing: whatever its turn in an order, the runtime reads and sends it at the start of the step."""
    problem = network(lab, large=1_000_000)
    turns = np.argsort([X, W, FIRST, V, SECOND, DV, DW, SUM]).astype(np.int32)
    splits = tuple(Split(op, "batch", 2, (0, 1)) for op in (FIRST, SECOND, DV, DW))
    strategy = Strategy("p", np.zeros(8, dtype=np.int32), turns, 0.0, splits)

    def seconds(live):
        base = splittable(problem, live)
        return replicate.simulate(base, split_problem(base, splits, replicate.split_costs(problem)), strategy)[0]

    assert seconds(False) - seconds(True) == pytest.approx(1.0, abs=0.05), "the second it takes to send `v`"


def test_without_offers_everything_is_on_one_device(lab):
    found = replicate.place(replace(network(lab), split_choices=()), PlanOptions())
    assert found.splits == () and found.planner["parts"] == 0
    assert found.predicted_step_seconds == pytest.approx(16.0, rel=0.02)


def test_terms_of_a_sum_go_from_part_to_part_and_are_added_once(lab):
    base = network(lab)
    adds = SplitChoice(SUM, "batch", 8, (-1, -1), (0,), True)
    problem = replace(base, split_choices=(*base.split_choices, adds))
    both = [Split(op, "batch", 2, (0, 1)) for op in (DW, DV, SUM)]
    split = split_problem(splittable(problem), both, SplitCosts())
    read = {int(split.origin[r]) for part in split.parts[0] for r in _readers(split, part)}
    assert SUM in read, "a term goes to a part of the sum"
    with pytest.raises(StrategyError, match="not split into terms alike"):
        split_problem(splittable(problem), both[1:], SplitCosts())


def _readers(split, op):
    tables = split.prepared.tables
    for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        yield from tables.reader[tables.reader_pointer[output] : tables.reader_pointer[output + 1]]


D0, D1 = "/job:w/task:0/device:CPU:0", "/job:w/task:1/device:CPU:0"
NODES = (Node("x", "Placeholder"), Node("a", "MatMul", ("x",)), Node("b", "MatMul", ("a",)), Node("loss", "Sum", ("b",)))


def test_a_live_session_is_planned_with_its_splits():
    models = CostModels()
    seen = DeviceObservation(D0, ("x", "a", "b", "loss"), np.array([1e-4, 0.5, 0.5, 1e-4]))
    models.observe(StepObservation((seen,), (), {name: {0: 4096} for name in ("x", "a", "b")}, batch=32))
    offers = (
        *(SplitOffer(op, "batch", 32, (1,), (1,)) for op in ("a", "b")),
        SplitOffer("gone", "batch", 32, (1,), (1,)),
        SplitOffer("loss", "batch", 32, (1, 1), (4,), True),  # of another graph: it reads two tensors there
    )
    devices = (SessionDevice(D0, "CPU", 0), SessionDevice(D1, "CPU", 0))
    situation = Situation("s", NODES, ("loss",), devices, models, {"a": D0}, splits=offers)
    problem = assemble(situation).problem
    assert [(problem.op_names[c.op], c.cut_bytes, c.joined_bytes) for c in problem.split_choices] == [
        ("a", (4096,), (4096,)),
        ("b", (4096,), (4096,)),
    ]
    told = []
    run(begin(situation, [], ordered=True), lambda *_: None, told.append)
    best = told[-1]
    assert told[0].enforced and not best.enforced, "parts in the graph's own order need none enforced"
    assert best.algorithm == "replicate" and {problem.op_names[s.op] for s in best.splits} == {"a", "b"}
    assert best.simulated_seconds == pytest.approx(0.5, rel=0.1)


def test_parts_teach_what_the_whole_takes():
    on0 = DeviceObservation(D0, ("a", "b", "c"), np.array([0.3, 0.1, 1.0]))
    on1 = DeviceObservation(D1, ("a",), np.array([0.9]))
    step = StepObservation((on0, on1), output_bytes={"a": {0: 5}, "c": {0: 7}}, temp_bytes={"a": 1})
    whole = of_whole_ops(step, {"a": InParts("batch", {D0: 0.25, D1: 0.75}), "b": InParts("1", {D1: 1.0})})
    assert whole.devices[0].ops == ("a|batch", "c") and whole.devices[0].seconds == pytest.approx([1.2, 1.0])
    assert whole.devices[1].ops == ("a|batch",) and whole.devices[1].seconds == pytest.approx([1.2])
    assert whole.output_bytes == {"c": {0: 7}} and whole.temp_bytes == {}


def test_devices_that_measure_alike_get_equal_parts(lab):
    for factor in (1.04, 0.83, 1.2):
        found = replicate.place(network(lab, second_device=factor), PlanOptions())
        assert {split.weights for split in found.splits} == {()}
    found = replicate.place(network(lab, second_device=1.5), PlanOptions())
    assert {split.weights for split in found.splits} == {(0.6, 0.4)}
