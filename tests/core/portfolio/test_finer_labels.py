"""Roles of ops and what is alike in all time steps are seen in an unrolled training graph without any names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stepd.core.portfolio.finer_labels import alike, by_role
from stepd.core.portfolio.labels import labellings
from stepd.core.portfolio.roles import BACKWARD, FORWARD, OWN, roles
from stepd.core.portfolio.units import make_units
from stepd.core.prepared import prepare

CELLS, STEPS = 2, 20


class Unrolled:
    """Cells unrolled over time steps, their gradients, and updates of their weights. at: [cells, steps] ops by what they do."""

    def __init__(self, lab):
        self.seconds, self.edges, self.types, self.resident, self.group = [], [], [], [], []
        weights = [self.op("Variable", 0.0, resident=1000, group=cell) for cell in range(CELLS)]
        table = np.full((CELLS, STEPS), -1)
        self.at = {kind: table.copy() for kind in ("Cell", "CellGrad", "WeightGrad")}
        forward, backward = self.at["Cell"], self.at["CellGrad"]
        for step in range(STEPS):
            for cell in range(CELLS):
                inputs = [weights[cell], *forward[:cell, step][-1:], *forward[cell, max(0, step - 1) : step]]
                forward[cell, step] = self.op("Cell", 1e-3, *inputs)
        loss = self.op("Loss", 1e-5, *forward[-1])
        for step in range(STEPS)[::-1]:
            for cell in range(CELLS)[::-1]:
                above = backward[cell + 1 :, step][:1] if cell + 1 < CELLS else [loss]
                backward[cell, step] = self.op("CellGrad", 1e-3, weights[cell], *above, *backward[cell, step + 1 :][:1])
                self.at["WeightGrad"][cell, step] = self.op("WeightGrad", 1e-3, forward[cell, step], backward[cell, step])
        done = self.op("NoOp", 0.0)
        for cell in range(CELLS):
            total = self.op("AddN", 1e-4, *self.at["WeightGrad"][cell])
            update = self.op("Update", 1e-4, total, weights[cell], group=cell)
            self.edges.append((update, done, -1, 0))
        links = [(0, 1, 1e9, 1e-5), (1, 0, 1e9, 1e-5)]
        seconds = [[value, value] for value in self.seconds]
        problem = lab.make_problem(seconds, self.edges, links, [10**9] * 2, self.resident, colocation=self.group)
        self.problem = replace(problem, op_types=tuple(self.types))

    def op(self, kind, seconds, *inputs, resident=0, group=-1):
        for source in inputs:
            self.edges.append((int(source), len(self.seconds), 0, 1000))
        self.seconds.append(seconds)
        self.types.append(kind)
        self.resident.append(resident)
        self.group.append(group)
        return len(self.seconds) - 1


@pytest.fixture
def unrolled(lab):
    return Unrolled(lab)


def test_roles_follow_from_the_updates_that_an_op_reaches(unrolled):
    role = roles(prepare(unrolled.problem))
    assert (role[unrolled.at["Cell"]] == FORWARD).all()
    assert (role[unrolled.at["WeightGrad"]] == OWN).all()
    assert (role[unrolled.at["CellGrad"][0]] == OWN).all()  # below the first cell there is nobody to pass anything on to
    top = role[unrolled.at["CellGrad"][1]]
    assert np.isin(top, (FORWARD, BACKWARD)).all()  # reaches all there is


def test_control_edges_reach_nothing(lab):
    """a -> b is data, b -> the update of other weights only control."""
    edges = [(0, 2, 0, 8), (2, 3, 0, 8), (2, 4, -1, 0), (1, 4, 0, 8)]
    problem = lab.make_problem([[1.0]] * 5, edges, [], [10**9], [8, 8, 0, 0, 0], colocation=[0, 1, -1, 0, 1])
    assert roles(prepare(problem))[2] == OWN


def test_a_layer_is_cut_by_role_in_the_order_of_the_step(unrolled):
    problem = unrolled.problem
    found = {item.kind: item for item in by_role(problem, labellings(problem))}
    label = found["weights by role"].label
    for kind in ("Cell", "WeightGrad"):
        for cell in range(CELLS):
            assert len(set(label[unrolled.at[kind][cell]])) == 1
    assert label[unrolled.at["Cell"][1, 0]] != label[unrolled.at["WeightGrad"][1, 0]]
    assert label[unrolled.at["Cell"][0, 0]] < label[unrolled.at["WeightGrad"][0, 0]]


def test_nothing_is_cut_where_nothing_is_trained(lab):
    problem = lab.make_problem([[1.0]] * 3, [(0, 1, 0, 8), (1, 2, 0, 8)], [], [10**9], [8, 0, 0])
    assert by_role(problem, labellings(problem)) == []


def test_all_time_steps_of_an_op_move_as_one_but_for_the_first_and_last_ones(unrolled):
    problem = unrolled.problem
    labels = labellings(problem)
    folded = alike(problem, labels)
    assert folded
    units = make_units(prepare(problem), labels, folded)
    group = prepare(problem).tables.group
    ops = group[unrolled.at["WeightGrad"][1, 6:-6]]
    levels = units.group_unit.reshape(-1, len(units.level_pointer) - 1)[ops]
    assert (levels == levels[0]).all(axis=0)[-len(folded) :].any()
    sizes = np.diff(units.unit_pointer)[levels[0]]
    assert ((sizes >= len(ops)) & (sizes < len(group) // 4)).any()


def test_a_graph_without_repetition_is_not_folded(lab):
    problem = lab.make_problem([[1.0 + k] for k in range(8)], [(k, k + 1, 0, 8) for k in range(7)], [], [10**9])
    assert alike(problem, labellings(problem)) == []
