"""Where links are missing: what is taken from a group's choices goes with nothing, and placements that cannot run are made to."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepd.core.prepared import prepare
from stepd.core.reach import connected, narrowed, possible_seconds, runs


def chain_of_devices(lab, ops=9):
    """A chain of ops on three devices, with links from each device to the next one only."""
    seconds = [[1.0 + k] * 3 for k in range(ops)]
    edges = [(k, k + 1, 0, 1) for k in range(ops - 1)]
    return lab.make_problem(seconds, edges, [(0, 1, 1.0, 0.0), (1, 2, 1.0, 0.0)], [10**6] * 3)


def test_what_cannot_run_is_changed_where_there_is_least_to_do(lab):
    prepared = prepare(chain_of_devices(lab))
    wish = np.array([0, 0, 2, 0, 0, 1, 0, 1, 2], dtype=np.int32)  # 2 to 0, 1 to 0: no path
    assert connected(prepared, wish).tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 2]
    kept = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2], dtype=np.int32)
    assert connected(prepared, kept).tolist() == kept.tolist()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_choices_that_are_taken_away_are_in_no_placement_that_runs(data, lab):
    problem = data.draw(lab.problems(max_ops=6, max_devices=3, one_way=True))
    prepared = prepare(problem)
    tables, allowed = prepared.tables, np.isfinite(prepared.group_seconds)
    used = np.zeros_like(allowed)
    for devices in product(*(np.flatnonzero(row) for row in allowed)):
        home = np.array(devices, dtype=np.int32)
        if runs(tables, home[tables.group]):
            used[np.arange(len(home)), home] = True
    assert used.any(axis=1).all()  # one device runs everything
    can = allowed.copy()
    assert narrowed(tables, np.isfinite(tables.latency), can)
    assert (can | ~used).all()
    assert np.isfinite(possible_seconds(prepared))[used].all()
    wish = np.array([data.draw(st.sampled_from(np.flatnonzero(row).tolist())) for row in allowed], dtype=np.int32)
    found = connected(prepared, wish)
    assert used[np.arange(len(found)), found].all()
    assert runs(tables, found[tables.group])
