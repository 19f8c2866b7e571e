"""Starts of few large clusters find the few cuts that pay where every cut is dear."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from stepd.core.portfolio import coarse_start
from stepd.core.portfolio.labels import labellings
from stepd.core.portfolio.pool import Candidate, Pool

BRANCHES = ((9, 1.0), (3, 1.0), (8, 0.5), (4, 1.5))  # ops, milliseconds of each
BLOCKS = 3


def blocks_of_branches(lab):
    """Blocks of four unlike chains side by side, one block after the other; a transfer takes as long as an op.

    Returns (problem, the branch of each op, -1 between blocks).
    """
    seconds, edges, branch_of = [[1e-5] * 2], [], [-1]
    joint = 0
    for block in range(BLOCKS):
        ends = []
        for branch, (length, ms) in enumerate(BRANCHES):
            for k in range(length):
                edges.append((joint if k == 0 else len(seconds) - 1, len(seconds), 0, 10**6))
                seconds.append([ms * 1e-3] * 2)
                branch_of.append(block * len(BRANCHES) + branch)
            ends.append(len(seconds) - 1)
        joint = len(seconds)
        seconds.append([1e-5] * 2)
        branch_of.append(-1)
        edges += [(end, joint, 0, 10**6) for end in ends]
    return lab.make_problem(seconds, edges, [(0, 1, 1e9, 1e-4), (1, 0, 1e9, 1e-4)], [10**12] * 2), np.array(branch_of)


def test_a_start_is_nearly_as_good_as_the_best_placement_of_whole_branches(lab):
    problem, branch_of = blocks_of_branches(lab)
    by_hand = Pool(problem)
    for devices in product(range(2), repeat=len(BRANCHES)):  # the blocks are alike
        chosen = np.array([*(devices * BLOCKS), 0], dtype=np.int32)
        by_hand.try_all([Candidate(f"{devices}", chosen[branch_of])])
    pool = Pool(problem)
    for start in coarse_start.starts(pool, labellings(problem)):
        pool.add(coarse_start.anneal_clusters(pool, start, seed=0))
    assert pool.cost <= by_hand.cost * 1.02
    alone = problem.seconds[:, 0].sum()
    assert by_hand.cost < 0.65 * alone  # there is something to find


def test_every_device_that_can_run_most_of_the_work_gets_its_share(lab):
    seconds = [[1e-3, 1e-3, np.inf]] * 7 + [[np.inf, np.inf, 1e-6]]
    links = [(a, b, 1e9, 1e-6) for a in range(3) for b in range(3) if a != b]
    problem = lab.make_problem(seconds, [(k, 7, 0, 8) for k in range(7)], links, [10**12] * 3)
    pool = Pool(problem)
    for start in coarse_start.starts(pool, labellings(problem)):
        entry = coarse_start.anneal_clusters(pool, start, seed=1)
        assert set(entry.point.placement[:7].tolist()) <= {0, 1}
        pool.add(entry)
    assert sorted(np.bincount(pool.best.point.placement, minlength=3).tolist()) == [1, 3, 4]


def test_starts_run_where_links_go_one_way(lab):
    """Shared out by load alone they would not, and a step that never ends has no order that a search could look at."""
    problem, _ = blocks_of_branches(lab)
    problem = replace(problem, links=problem.links[:1])
    pool = Pool(problem)
    for start in coarse_start.starts(pool, labellings(problem)):
        pool.add(coarse_start.anneal_clusters(pool, start, seed=0))
    assert pool.cost < 0.9 * problem.seconds[:, 0].sum()
