"""What Moirai's paper shows, claim by claim."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.coarsen import coarsen
from stepd.core.errors import PlannerError
from stepd.core.placement.fusion_rules import MOIRAI_TABLE_I, TENSORFLOW_REMAPPER
from stepd.core.placement.gcof import fuse
from stepd.core.placement.moirai import fused_ops, place
from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare
from stepd.core.problem import Device, Link, Problem
from stepd.core.simulator import simulate

Edges = list[tuple[int, int]]
FULL_MESH = tuple(Link(i, j, 1.0, 0.0) for i in range(2) for j in range(2) if i != j)


def problem(types: list[str], edges: Edges, **columns: Any) -> Problem:
    n = len(types)
    devices = columns.pop("devices", 2)
    values: dict[str, Any] = {
        "seconds": np.ones((n, devices)),
        "resident_bytes": np.zeros(n, dtype=np.int64),
        "temp_bytes": np.zeros(n, dtype=np.int64),
        "colocation": np.full(n, -1, dtype=np.int32),
        "links": FULL_MESH,
        **columns,
    }
    table = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return Problem(
        name="moirai",
        devices=tuple(Device(f"gpu:{d}", "GPU", 1000) for d in range(devices)),
        op_names=tuple(f"{kind}{i}" for i, kind in enumerate(types)),
        op_types=tuple(types),
        edge_src=table[:, 0].copy(),
        edge_dst=table[:, 1].copy(),
        edge_output=np.zeros(len(table), dtype=np.int32),
        edge_bytes=np.ones(len(table), dtype=np.int64),
        **values,
    )


def clusters(instance: Problem, rules: Any) -> set[frozenset[str]]:
    cluster = fuse(prepare(instance).tables, instance.op_types, rules, lambda one, other: True)
    return {frozenset(instance.op_names[i] for i in np.flatnonzero(cluster == c)) for c in set(cluster.tolist())}


def fused(instance: Problem, rules: Any) -> set[frozenset[str]]:
    return {ops for ops in clusters(instance, rules) if len(ops) > 1}


FIGURE_7 = problem(
    ["add", "relu", "add", "relu", "conv", "bn", "conv", "bn", "add", "relu"],
    [(0, 1), (1, 2), (2, 3), (3, 8), (0, 4), (4, 5), (5, 6), (6, 7), (7, 8), (8, 9)],
)


def test_figure_7() -> None:
    """conv1 o bn by rule 1, conv2 o bn o add o relu by rule 3; add with two readers is not fused, the bound add o relu is
    released."""
    assert fused(FIGURE_7, MOIRAI_TABLE_I) == {frozenset({"conv4", "bn5"}), frozenset({"conv6", "bn7", "add8", "relu9"})}


def test_figure_6_multi_outputs_are_not_fused_direct_and_multi_inputs_are() -> None:
    assert fused(problem(["conv", "bn"], [(0, 1)]), MOIRAI_TABLE_I) == {frozenset({"conv0", "bn1"})}
    assert fused(problem(["conv", "bn", "x"], [(0, 1), (0, 2)]), MOIRAI_TABLE_I) == set()
    assert fused(problem(["conv", "x", "bn"], [(0, 2), (1, 2)]), MOIRAI_TABLE_I) == {frozenset({"conv0", "bn2"})}


def test_what_is_bound_falls_back_to_what_was_fused() -> None:
    """conv o bn o add waits for relu; when none comes, conv o bn stays."""
    assert fused(problem(["conv", "bn", "add", "x"], [(0, 1), (1, 2), (2, 3)]), MOIRAI_TABLE_I) == {frozenset({"conv0", "bn1"})}


@pytest.mark.parametrize(
    "types",
    [
        ["MatMul", "BiasAdd", "Relu"],
        ["Conv2D", "BiasAdd", "AddV2", "Relu"],
        ["DepthwiseConv2dNative", "BiasAdd", "Relu6"],
        ["Conv2D", "FusedBatchNormV3", "Relu"],
        ["FusedBatchNormV3", "AddV2", "Relu"],
        ["ReluGrad", "FusedBatchNormGradV3"],
        ["BatchMatMulV2", "Mul", "AddV2"],
    ],
)
def test_tensorflow_s_own_fusions(types: list[str]) -> None:
    chain = problem(types, [(i, i + 1) for i in range(len(types) - 1)])
    assert fused(chain, TENSORFLOW_REMAPPER) == {frozenset(chain.op_names)}


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_fusion_never_makes_a_cycle_and_every_cluster_is_a_rule(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 14))
    types = data.draw(st.lists(st.sampled_from(["conv", "bn", "add", "relu"]), min_size=n, max_size=n))
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=20)) if pairs else []
    instance = problem(types, edges)
    cluster = fuse(prepare(instance).tables, instance.op_types, MOIRAI_TABLE_I, lambda one, other: True)
    coarsen(instance, cluster)  # raises ProblemError on a cycle
    rules = {("conv", "bn"), ("conv", "bn", "relu"), ("conv", "bn", "add", "relu")}
    for c in set(cluster.tolist()):
        members = np.flatnonzero(cluster == c)
        assert len(members) == 1 or tuple(types[i] for i in members) in rules


def test_ops_that_share_no_device_are_not_fused() -> None:
    seconds = np.array([[1.0, np.inf], [np.inf, 1.0]])
    assert fused_ops(problem(["conv", "bn"], [(0, 1)], seconds=seconds), "moirai-table-1").tolist() == [0, 1]


def test_an_unknown_rule_set_is_named() -> None:
    with pytest.raises(PlannerError, match="eigen"):
        fused_ops(FIGURE_7, "eigen")


def test_heterogeneous_devices_and_asymmetric_channels_decide_the_placement() -> None:
    """Device 1 is four times faster; the way there is cheap, the way back is not: everything that follows stays there."""
    pytest.importorskip("ortools")
    links = (Link(0, 1, 10.0, 0.0), Link(1, 0, 0.01, 0.0))
    seconds = np.array([[1.0, np.inf], [4.0, 1.0], [4.0, 1.0], [4.0, 1.0]])
    chain = problem(["x", "y", "y", "y"], [(0, 1), (1, 2), (2, 3)], links=links, seconds=seconds)
    strategy = place(chain, PlanOptions())
    assert strategy.placement.tolist() == [0, 1, 1, 1]
    assert strategy.predicted_step_seconds == pytest.approx(1.0 + 0.1 + 3.0)
    assert strategy.planner["status"] == "optimal"


def test_figure_3_a_multi_hop_channel_holds_all_its_links_and_has_the_least_bandwidth() -> None:
    """100 bytes over links of 10 and 5 bytes a second take 20 seconds, and a second transfer on the shared link waits."""
    pytest.importorskip("ortools")
    links = (Link(0, 1, 10.0, 0.0), Link(1, 2, 5.0, 0.0))
    inf = np.inf
    seconds = np.array([[1.0, inf, inf], [1.0, inf, inf], [inf, inf, 1.0], [inf, inf, 1.0]])
    pairs = problem(["a", "a", "b", "b"], [(0, 2), (1, 3)], devices=3, links=links, seconds=seconds)
    far = Problem(**{**{k: v for k, v in vars(pairs).items() if not k.startswith("_")}, "edge_bytes": np.array([100, 100])})
    strategy = place(far, PlanOptions())
    assert strategy.predicted_step_seconds == pytest.approx(1.0 + 20.0 + 20.0 + 1.0)
    assert simulate(far, strategy).step_seconds == strategy.predicted_step_seconds
