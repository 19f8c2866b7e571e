"""Problems that the tests of several planners share."""

from __future__ import annotations

import pytest


@pytest.fixture
def branches(lab):
    """Two branches of six layers of 1 s with a variable of 10 bytes each, between a source and a sink; two devices, fast links.

    Ops: 0 source, 1 sink, then by branch and layer: variable, layer. An answer that splits the branches takes half of 12 s.
    """
    seconds, edges, resident = [[0.1] * 2, [0.1] * 2], [], [0, 0]
    for _ in range(2):
        before = 0
        for _ in range(6):
            variable = len(seconds)
            seconds += [[0.0] * 2, [1.0] * 2]
            resident += [10, 0]
            edges += [(variable, variable + 1, 0, 10), (before, variable + 1, 0, 2)]
            before = variable + 1
        edges.append((before, 1, 0, 2))
    links = [(0, 1, 1000.0, 0.01), (1, 0, 1000.0, 0.01)]
    return lab.make_problem(seconds, edges, links, [10**6] * 2, resident, name="branches")
