"""m-SCT: the linear program of favourite children, and what its schedule does with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stepd.core.errors import PlannerError
from stepd.core.placement.favourite_children import favourite_children
from stepd.core.placement.m_sct import place
from stepd.core.placement.ranks import op_seconds, transfer_seconds
from stepd.core.placement.registry import PlanOptions
from stepd.core.prepared import prepare

LINKS = [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)]


def children(problem: Any, limit: float = 10.0) -> list[int]:
    prepared = prepare(problem)
    return favourite_children(
        prepared.tables, op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean"), 0.5, limit
    ).tolist()


def test_the_child_on_the_critical_path_is_the_favourite(lab: Any) -> None:
    """0 -> 1 (long) and 0 -> 2 (short) -> 3: one child each, and 3 has one favourite parent."""
    seconds = [[1.0] * 2, [5.0] * 2, [1.0] * 2, [1.0] * 2]
    edges = [(0, 1, 0, 1), (0, 2, 1, 1), (1, 3, 0, 1), (2, 3, 0, 1)]
    assert children(lab.make_problem(seconds, edges, LINKS, [999] * 2)) == [1, 3, -1, -1]


def test_a_graph_without_edges_has_no_children(lab: Any) -> None:
    assert children(lab.make_problem([[1.0] * 2] * 3, [], LINKS, [999] * 2)) == [-1, -1, -1]


def test_no_time_for_the_linear_program_is_said(branches: Any) -> None:
    with pytest.raises(PlannerError, match="favourite children"):
        children(branches, limit=0.0)


def test_the_linear_program_ends_with_the_budget(branches: Any) -> None:
    """The portfolio gives slow algorithms a share of its budget; m-SCT took up to a minute whatever it was given."""
    with pytest.raises(PlannerError, match="favourite children"):
        place(branches, PlanOptions(budget_seconds=0.0))


def test_a_device_waits_for_the_favourite_child(lab: Any) -> None:
    """0 ends on a device; its favourite child 2 also needs 1, from the other one. Op 3 is ready earlier but not urgent: it would
    have to be fetched to the waiting device; so 2 runs right after 0 where 0 ran."""
    seconds = [[2.0] * 2, [2.0] * 2, [4.0] * 2, [1.0] * 2]
    edges = [(0, 2, 0, 3), (1, 2, 0, 1), (1, 3, 1, 1)]
    strategy = place(lab.make_problem(seconds, edges, LINKS, [999] * 2), PlanOptions())
    assert strategy.planner["favourite_children"] >= 1
    assert strategy.placement[0] == strategy.placement[2]
    assert strategy.predicted_step_seconds == pytest.approx(2.0 + 1.0 + 4.0)


def test_variables_go_with_their_readers_and_memory_spreads_them(branches: Any) -> None:
    """All on one device need more than 130 bytes: 120 resident, and at least 12 on the way."""
    devices = tuple(replace(device, memory_bytes=130) for device in branches.devices)
    strategy = place(replace(branches, devices=devices), PlanOptions())
    assert strategy.planner["feasible"]
    for op in range(2, branches.n_ops, 2):
        assert strategy.placement[op] == strategy.placement[op + 1]
