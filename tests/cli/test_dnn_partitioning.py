"""What the published workload graphs mean as problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepd.cli.dnn_partitioning import read_partitioning_workload
from stepd.core.errors import ProblemError
from stepd.core.simulator import simulate_placement


def node(number: int, **changes: Any) -> dict[str, Any]:
    common = {"name": f"n{number}", "supportedOnFpga": 1, "cpuLatency": 50.0, "fpgaLatency": 10.0, "size": 100.0}
    return {"id": number, "colorClass": number, **common, **changes}


def workload(nodes: list[dict[str, Any]], edges: list[tuple[int, int, float]], **changes: Any) -> dict[str, Any]:
    rows = [{"sourceId": a, "destId": b, "cost": cost, "size": 0} for a, b, cost in edges]
    return {"maxSizePerFPGA": 1000.0, "maxFPGAs": 2, "maxCPUs": 2, "nodes": nodes, "edges": rows, **changes}


CHAIN = workload([node(7), node(8)], [(7, 8, 3.0)])


@pytest.mark.parametrize(
    ("placement", "milliseconds"),
    [
        ([0, 0], 10 + 10),
        ([0, 1], 10 + 2 * 3 + 10),  # leaving one accelerator and entering another
        ([0, 2], 10 + 3 + 50),
        ([2, 0], 50 + 3 + 10),
        ([2, 3], 50 + 50),  # CPUs share host memory
    ],
)
def test_a_transfer_costs_leaving_and_entering(placement: list[int], milliseconds: float) -> None:
    problem = read_partitioning_workload("chain", CHAIN)
    simulation = simulate_placement(problem, np.array(placement, np.int32), np.arange(2, dtype=np.int32))
    assert simulation.step_seconds == pytest.approx(milliseconds / 1e3, rel=1e-6)


def test_sizes_are_what_memory_holds_and_outputs_add_next_to_nothing() -> None:
    problem = read_partitioning_workload("chain", workload([node(7), node(8)], [(7, 8, 0.0)]))
    simulation = simulate_placement(problem, np.zeros(2, np.int32), np.arange(2, dtype=np.int32))
    assert simulation.device_peak_bytes.tolist() == [200, 0, 0, 0]
    assert [device.memory_bytes for device in problem.devices[:2]] == [1000, 1000]


def test_color_classes_of_several_nodes_are_groups_and_unsupported_nodes_stay_on_the_host() -> None:
    nodes = [node(1, colorClass=9), node(2), node(3, colorClass=9, name="n1"), node(4, supportedOnFpga=0)]
    problem = read_partitioning_workload("colors", workload(nodes, []))
    assert problem.colocation.tolist() == [0, -1, 0, -1]
    assert np.isfinite(problem.seconds[3]).tolist() == [False, False, True, True]
    assert problem.op_names == ("n1@1", "n2", "n1@3", "n4")  # names that come twice are told apart by their ids


def test_edges_of_one_cost_are_one_output() -> None:
    nodes = [node(k) for k in range(4)]
    problem = read_partitioning_workload("fan", workload(nodes, [(0, 1, 2.0), (0, 2, 2.0), (0, 3, 5.0)]))
    assert problem.edge_output.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (workload([node(1), node(1)], []), "two nodes have the id 1"),
        (workload([node(1, fpgaLatency=-1.0)], []), "node 'n1': fpgaLatency is -1.0"),
        (workload([node(1), node(2)], [(1, 2, float("inf"))]), r"edge 0 \(1 -> 2\): cost is inf"),
        (workload([node(1)], []) | {"nodes": "none"}, "must be lists"),
        (workload([node(1), node(2)], [(1, 2, 1.0), (2, 1, 1.0)]), "cycle of 2 ops"),
    ],
)
def test_what_is_wrong_is_named(value: dict[str, Any], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        read_partitioning_workload("bad", value)
