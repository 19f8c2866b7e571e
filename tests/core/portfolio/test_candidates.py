"""What a human expert would try comes in the order in which it is most often good."""

from __future__ import annotations

import numpy as np

from stepd.core.portfolio.candidates import expert_placements
from stepd.core.portfolio.labels import Labelling
from stepd.core.prepared import prepare


def test_a_device_that_is_far_slower_is_left_out_at_first(lab):
    """A chain of four parts on two fast devices and a CPU: parts in turn over all three had its steps ten times as long."""
    links = [(a, b, 1e9, 1e-6, 0.0) for a in range(3) for b in range(3) if a != b]
    problem = lab.make_problem([[1e-3, 1e-3, 2e-2]] * 4, [(0, 1, 0, 8), (1, 2, 0, 8), (2, 3, 0, 8)], links, [10**9] * 3)
    labelling = Labelling("layer", np.arange(4, dtype=np.int32), 4)
    found = list(expert_placements(prepare(problem), labelling))
    assert [origin for origin, _ in found[:2]] == ["layer: in turn over 2", "layer: 2 cuts by time"]
    tables = prepare(problem).tables
    assert found[0][1][tables.group].tolist() == [0, 1, 0, 1]
    assert found[1][1][tables.group].tolist() == [0, 0, 1, 1]
    assert any(2 in placement for _, placement in found), "where memory is tight it is needed all the same"
