"""From a live session to a plan: what stays put, what is glued, what today costs, and how predictions are corrected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepd.core import planning
from stepd.core.assembly import UNLIMITED, Situation, SplitOffer, assemble
from stepd.core.calibration import Measured, columns
from stepd.core.cost.communication import HANDLING
from stepd.core.cost.models import CostModels
from stepd.core.cost.observation import DeviceObservation, StepObservation, Transfer
from stepd.core.enforced import as_enforced, unordered
from stepd.core.errors import ProblemError
from stepd.core.graph import Node
from stepd.core.session_links import SessionDevice
from stepd.core.simulator import simulate_placement
from stepd.core.strategy import Strategy

D0, D1 = "/job:w/task:0/device:CPU:0", "/job:w/task:1/device:CPU:0"
NODES = (
    Node("x", "Placeholder"),
    Node("w", "VarHandleOp", dtype=1, shape=(10, 10)),
    Node("w/read", "ReadVariableOp", ("w",)),
    Node("left", "MatMul", ("x", "w/read")),
    Node("right", "MatMul", ("x",)),
    Node("right/bias", "BiasAdd", ("right",)),
    Node("loss", "AddN", ("left", "right/bias")),
    Node("summary", "ScalarSummary", ("loss",)),
)
SECONDS = {"x": 1e-5, "w": 1e-6, "w/read": 1e-6, "left": 0.05, "right/bias": 0.05, "loss": 0.001}


def learned(link_seconds: float = 0.001) -> CostModels:
    models = CostModels()
    observed = DeviceObservation(D0, tuple(SECONDS), np.array(list(SECONDS.values())))
    sizes = {name: {0: 1000} for name in SECONDS}
    transfers = tuple(Transfer(D0, D1, "x", size, link_seconds * (1 + size / 1e6)) for size in (100, 1000, 10**6) for _ in range(3))
    models.observe(StepObservation((observed,), transfers, sizes, temp_bytes={"left": 77}, batch=32))
    return models


def situation(**changes) -> Situation:
    devices = (SessionDevice(D0, "CPU", 0), SessionDevice(D1, "CPU", 1 << 20))
    base = Situation("s", NODES, ("loss",), devices, learned(), dict.fromkeys(SECONDS, D0))
    return replace(base, **changes)


def seconds_of(problem, name: str) -> list[float]:
    return problem.seconds[problem.op_names.index(name)].tolist()


def test_only_what_the_step_runs_with_learned_costs() -> None:
    problem = assemble(situation()).problem
    assert "summary" not in problem.op_names
    assert seconds_of(problem, "left") == pytest.approx([0.05, 0.05])
    row = problem.op_names.index("left")
    assert problem.temp_bytes[row] == 1077
    assert problem.resident_bytes[problem.op_names.index("w")] == 400
    assert [device.memory_bytes for device in problem.devices] == [UNLIMITED, 1 << 20]
    assert set(problem.edge_bytes.tolist()) <= {0, 1000}


def test_plans_do_not_fill_a_gpu() -> None:
    devices = (SessionDevice(D0, "GPU", 1000), SessionDevice(D1, "CPU", 1000))
    assert [device.memory_bytes for device in assemble(situation(devices=devices)).problem.devices] == [800, 1000]


def test_what_the_runtime_fused_shares_its_consumers_device() -> None:
    problem = assemble(situation()).problem
    group = dict(zip(problem.op_names, problem.colocation.tolist(), strict=True))
    assert group["right"] == group["right/bias"] >= 0
    assert group["w"] == group["w/read"] != group["right"]


def test_what_the_runtime_took_out_hands_on_what_it_was_given() -> None:
    """A tuple of gradients is made of Identity ops, which Grappler removes; a cut behind one sends the gradient all the same."""
    chain = (
        Node("back", "Identity", ("left",)),
        Node("flat", "Reshape", ("back", "x")),
        Node("a", "MatMul", ("flat",)),
        Node("b", "MatMul", ("flat",)),
        Node("c", "MatMul", ("back",)),
        Node("sum", "AddN", ("a", "b", "c")),
    )
    problem = assemble(situation(nodes=(*NODES, *chain), outputs=("sum",))).problem
    sizes = {
        (problem.op_names[src], problem.op_names[dst]): size
        for src, dst, size in zip(problem.edge_src.tolist(), problem.edge_dst.tolist(), problem.edge_bytes.tolist(), strict=True)
    }
    assert sizes["flat", "a"] == sizes["flat", "b"] == sizes["back", "c"] == sizes["left", "back"] == 1000
    assert sizes["a", "sum"] == 0  # not known, and not handed on


def test_pinned_ops_and_their_groups_stay_where_they_are() -> None:
    problem = assemble(situation(pinned={"w": "session handle"})).problem
    for name in ("w", "w/read"):
        assert np.isfinite(seconds_of(problem, name)).tolist() == [True, False]
    assert np.isfinite(seconds_of(problem, "left")).all()


def test_devices_that_are_not_usable_host_only_what_is_pinned_there() -> None:
    trainer = SessionDevice("/job:t/task:0/device:CPU:0", "CPU", 0, usable=False)
    base = situation()
    problem = assemble(
        replace(base, devices=(*base.devices, trainer), pinned={"x": "feed"}, today={**base.today, "x": trainer.name})
    ).problem
    assert np.isfinite(seconds_of(problem, "x")).tolist() == [False, False, True]
    assert np.isfinite(seconds_of(problem, "left")).tolist() == [True, True, False]


def test_what_transfers_cost_the_cores_is_as_measured_where_both_ends_know_it() -> None:
    a, b = (SessionDevice(name, "CPU", 0, True, each, 3e-9) for name, each in ((D0, 1e-4), (D1, 3e-4)))
    gpu = SessionDevice("/job:w/task:1/device:GPU:0", "GPU", 1 << 30)
    unknown = SessionDevice("/job:w/task:2/device:CPU:0", "CPU", 0)
    links = assemble(situation(devices=(a, b, gpu, unknown))).problem.links
    cost = {(link.src, link.dst): (link.handling_seconds, link.handling_seconds_per_byte) for link in links}
    assert cost[0, 1] == cost[1, 0] == pytest.approx((2e-4, 3e-9))
    assert cost[0, 2] == (0.0, 0.0)
    assert cost[0, 3] == HANDLING


def test_kernels_that_a_device_type_lacks() -> None:
    base = situation()
    gpu = SessionDevice("/job:w/task:0/device:GPU:0", "GPU", 1 << 30)
    problem = assemble(replace(base, devices=(*base.devices, gpu), device_kinds={"AddN": ("CPU",)})).problem
    assert np.isfinite(seconds_of(problem, "loss")).tolist() == [True, True, False]
    assert seconds_of(problem, "left")[2] < 0.05


def test_an_op_stays_on_the_type_of_device_where_kernels_of_another_would_round_otherwise() -> None:
    base = situation()
    gpus = tuple(SessionDevice(f"/job:w/task:0/device:GPU:{k}", "GPU", 1 << 30) for k in range(2))
    today = {**base.today, **dict.fromkeys(("left", "w", "w/read", "right/bias"), gpus[1].name)}
    mixed = replace(base, devices=(*base.devices, *gpus), today=today)
    problem = assemble(replace(mixed, keeps_types=True)).problem
    assert np.isfinite(seconds_of(problem, "loss")).tolist() == [True, True, False, False]
    assert np.isfinite(seconds_of(problem, "left")).tolist() == [False, False, True, True]
    assert np.isfinite(seconds_of(assemble(mixed).problem, "left")).all()


def test_a_step_of_another_graph_is_an_error() -> None:
    with pytest.raises(ProblemError, match="none of the step's fetches"):
        assemble(situation(outputs=("nothing",)))


def measured(name: str, seconds: float, moved: tuple[str, ...] = (), **facts) -> Measured:
    return Measured(name, {**dict.fromkeys(SECONDS, D0), **dict.fromkeys(moved, D1)}, {}, seconds, **facts)


def test_predictions_are_corrected_by_what_is_in_force() -> None:
    plain = planning.begin(situation(), [])
    assert (plain.calibration.factor, plain.calibration.error) == (1.0, 0.0)
    corrected = planning.begin(situation(), [measured("", 0.2, in_force=True)])
    assert corrected.calibration.factor == pytest.approx(0.2 / corrected.calibration.today_simulated_seconds)
    found: list[planning.Candidate] = []
    planning.run(corrected, lambda problem, starts, report: None, found.append)
    assert found[0].seconds == pytest.approx(0.2)


def test_a_model_miss_slows_the_links_until_the_loser_is_predicted_as_it_measured() -> None:
    """A strategy that lost teaches: the next plan no longer believes in it."""
    moved = ("right", "right/bias")
    own = measured("", 0.101, in_force=True)
    naive = planning.begin(situation(), [own])
    placement = np.array([int(name in moved) for name in naive.assembled.problem.op_names], dtype=np.int32)

    def predicted(plan: planning.Planning) -> float:
        step = simulate_placement(plan.assembled.problem, placement, plan.order).step_seconds
        return step * plan.calibration.factor

    slow = situation(models=learned(link_seconds=0.01))
    truth = 0.101
    before = predicted(planning.begin(slow, [own]))
    taught = planning.begin(slow, [own, measured("bad", truth, moved, lost=True)])
    assert before < 0.9 * truth
    assert abs(predicted(taught) / truth - 1) < abs(before / truth - 1) / 2
    assert taught.calibration.link_factor > 1
    assert taught.calibration.error < 0.1


def test_a_placement_near_one_that_lost_is_marked() -> None:
    known = [measured("", 0.101, in_force=True), measured("bad", 0.2, ("right", "right/bias"), lost=True)]
    plan = planning.begin(situation(), known)
    names = plan.assembled.problem.op_names
    again = np.array([int(name in ("right", "right/bias", "loss")) for name in names], dtype=np.int32)
    other = np.array([int(name in ("left", "w", "w/read")) for name in names], dtype=np.int32)
    near = plan.consider(Strategy("s", again, plan.order, 0.0))
    far = plan.consider(Strategy("s", other, plan.order, 0.0))
    assert near is not None and near.near_lost
    assert far is not None and not far.near_lost


def test_candidates_come_in_order_of_improvement_and_infeasible_ones_are_infinite() -> None:
    base = situation()
    small = tuple(replace(device, memory_bytes=10) for device in base.devices)
    plan = planning.begin(replace(base, devices=small), [])
    found: list[planning.Candidate] = []
    planning.run(plan, lambda problem, starts, report: None, found.append)
    assert all(candidate.seconds == float("inf") for candidate in found)


def test_what_a_trace_does_not_name_goes_with_what_it_was_fused_into() -> None:
    """Torn apart, the own placement would seem to have paid for transfers, and the links would be blamed when predictions miss."""
    moved = situation(today={**dict.fromkeys(SECONDS, D0), "right/bias": D1})
    own, kept = measured("", 0.101), measured("kept", 0.055, ("right/bias",), in_force=True)
    plan = planning.begin(moved, [own, kept])
    problem, today = plan.assembled.problem, plan.assembled.today
    right = problem.op_names.index("right")
    assert today[right] == 1
    assert columns(problem, today, plan.order, own)[0].tolist() == [0] * problem.n_ops
    assert columns(problem, today, plan.order, kept)[0].tolist() == today.tolist()
    assert (plan.calibration.link_factor, plan.calibration.handling_factor) == (1.0, 1.0)


def test_a_search_starts_from_the_order_in_force() -> None:
    problem = assemble(situation()).problem
    order = {name: k for k, name in enumerate(reversed(problem.op_names))}
    started: list[list[int]] = []
    for ordered in (True, False):
        plan = planning.begin(situation(), [replace(measured("", 0.1, in_force=True), priority=order)], ordered=ordered)
        planning.run(plan, lambda _, starts, report: started.append(starts[0].priority.tolist()), lambda found: None)
    backwards = np.arange(problem.n_ops, dtype=np.int32)[::-1]
    assert started == [as_enforced(problem, backwards).tolist(), plan.order.tolist()]


def test_what_costs_nothing_is_not_held_back_and_its_transfers_leave_at_once() -> None:
    """The runtime orders only what costs something: a plan may not count on weights that are sent when they are needed."""
    plan = planning.begin(situation(), [measured("", 0.101, in_force=True)], ordered=True)
    problem = plan.assembled.problem
    cheap = [name for name, free in zip(problem.op_names, unordered(problem), strict=True) if free]
    assert cheap == ["x", "w", "w/read", "right"]  # the last runs as part of its bias, a trace says
    last = np.argsort(np.argsort([name in cheap for name in problem.op_names], kind="stable")).astype(np.int32)
    placement = np.array([int(name == "left") for name in problem.op_names], dtype=np.int32)
    slow = replace(problem, links=tuple(replace(link, handling_seconds=0.01) for link in problem.links))
    plan = replace(plan, assembled=replace(plan.assembled, problem=slow))
    found = plan.consider(Strategy(problem.name, placement, last, 0.0))
    assert found is not None
    assert found.priority.tolist() == as_enforced(slow, last).tolist()
    assert found.simulated_seconds == simulate_placement(slow, placement, found.priority).step_seconds


def test_an_order_that_is_kept_whole_is_judged_alone() -> None:
    """Where it is kept in part, what hangs on it counts half."""
    known = [measured("", 0.101, in_force=True)]
    problem = assemble(situation()).problem
    placement = np.array([int(name in ("right", "right/bias")) for name in problem.op_names], dtype=np.int32)
    backwards = np.arange(problem.n_ops, dtype=np.int32)[::-1].copy()
    ranks = {}
    for whole in (True, False):
        plan = planning.begin(situation(), known, ordered=True, whole_order=whole)
        found = plan.consider(Strategy("s", placement, backwards, 0.0))
        assert found is not None
        own = simulate_placement(plan.assembled.problem, placement, found.priority).step_seconds
        anyhow = simulate_placement(plan.assembled.problem, placement, as_enforced(plan.assembled.problem, plan.order)).step_seconds
        assert found.simulated_seconds == own != anyhow
        ranks[whole] = plan._best[0][1]
        assert ranks[whole] == (own if whole else (own + anyhow) / 2)
    assert ranks[True] != ranks[False]


def test_what_won_its_trial_before_is_where_a_search_starts_too() -> None:
    own = measured("", 0.101, in_force=True)
    won, lost = measured("won", 0.06, ("right/bias",)), measured("lost", 0.2, ("left",), lost=True)
    plan = planning.begin(situation(), [own, won, lost], ordered=True)
    started: list[list[int]] = []
    found: list[planning.Candidate] = []
    planning.run(plan, lambda _, starts, report: started.extend(start.placement.tolist() for start in starts), found.append)
    names = plan.assembled.problem.op_names
    assert started == [[0] * len(names), [int(name in ("right", "right/bias")) for name in names]]
    assert found[-1].algorithm == "kept before: won"


@pytest.mark.parametrize(("slower", "error", "taken"), [(1.04, 0.0, False), (1.06, 0.0, True), (1.2, 0.25, False)])
def test_what_was_measured_stands_until_a_plan_promises_clearly_more(slower: float, error: float, taken: bool) -> None:
    """A search that starts from what ran finds something a little shorter nearly always, by the model."""
    own, won = measured("", 0.101, in_force=True), measured("won", 0.06, ("right/bias",))
    plan = planning.begin(situation(), [own, won], ordered=True)
    start = plan.kept[0][0]
    in_order = replace(start, priority=as_enforced(plan.assembled.problem, plan.order), planner={"algorithm": "searched"})
    promised = plan.calibration.factor * simulate_placement(plan.assembled.problem, start.placement, in_order.priority).step_seconds
    seconds = slower * promised
    plan = replace(plan, kept=((start, seconds),), calibration=replace(plan.calibration, error=error))
    found: list[planning.Candidate] = []
    planning.run(plan, lambda _, starts, report: report(in_order), found.append)
    expected = ("searched", promised) if taken else ("kept before: won", seconds)
    assert (found[-1].algorithm, found[-1].seconds) == (expected[0], pytest.approx(expected[1]))


@pytest.mark.parametrize("whole", [False, True])
def test_parts_in_the_graphs_own_order_are_held_to_it_where_orders_are_kept_whole(whole: bool) -> None:
    offers = tuple(SplitOffer(op, "batch", 32, (1,), (1,)) for op in ("right", "right/bias"))
    told: list[planning.Candidate] = []
    plan = planning.begin(situation(splits=offers), [measured("", 0.101, in_force=True)], ordered=True, whole_order=whole)
    planning.run(plan, lambda *_: None, told.append)
    in_parts = [found for found in told if found.splits and np.array_equal(found.priority, plan.order)]
    assert in_parts and all(found.enforced is whole for found in in_parts)
