"""Labellings cut finer: the parts of a layer that do different things, and what is the same thing in all repetitions.

Where a graph repeats itself, one time step after the other, moving an op in one repetition alone seldom pays: each of them would
have to send what the others do not. Moved in all repetitions at once it may. It knows no devices.
"""

from __future__ import annotations

import numpy as np

from stepd.core.portfolio.labels import Labelling, complete, in_order, op_cost, positions, structural_classes
from stepd.core.portfolio.roles import OWN, roles
from stepd.core.prepared import prepare
from stepd.core.problem import Problem

MOST_CUT = 64
"""Parts of a labelling that is cut finer."""
LEAST_OWN = 0.05
"""Share of the work that gradients of weights must be for the roles of ops to matter."""
REPEATED = 0.5
"""Kinds of ops, at most, for each group: what is repeated less is not called a repetition."""


def by_role(problem: Problem, labellings: list[Labelling]) -> list[Labelling]:
    """The parts of labellings with few of them, each cut into forward pass, gradients passed on, and gradients of weights alone."""
    prepared = prepare(problem)
    cost = op_cost(prepared)
    role = roles(prepared)
    if cost[role == OWN].sum() < LEAST_OWN * cost.sum():
        return []
    position = positions(prepared.tables)
    found = []
    for item in labellings:
        if item.count <= MOST_CUT:
            partial = np.where(role < 0, -1, item.label * 3 + role).astype(np.int32)
            dense = np.unique(complete(prepared.tables, partial), return_inverse=True)[1].reshape(-1).astype(np.int32)
            label = in_order(dense, position, partial, cost)
            found.append(Labelling(f"{item.kind} by role", label, int(label.max()) + 1))
    return found


def alike(problem: Problem, labellings: list[Labelling]) -> list[Labelling]:
    """Folded graphs: ops that play the same role in every repetition, such as one op of all time steps of a layer, are one part.

    They have the same structural class and are in the same part of a labelling with few parts.
    """
    prepared = prepare(problem)
    classes = structural_classes(problem, prepared)
    found = []
    for item in labellings:
        if item.count <= MOST_CUT:
            both = item.label.astype(np.int64) * len(classes) + classes
            label = np.unique(both, return_inverse=True)[1].reshape(-1).astype(np.int32)
            count = int(label.max()) + 1
            if count <= REPEATED * prepared.n_groups:
                found.append(Labelling(f"{item.kind}, alike", label, count, folded=True))
    return found
