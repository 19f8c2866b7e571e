"""Annealing chains that do not look at memory at every move: what they call best fits all the same; and chains that make it fit."""

from __future__ import annotations

import numpy as np

from stepd.core.placement.rng import new_rng
from stepd.core.portfolio.annealing import ROOMY, Walk, anneal
from stepd.core.portfolio.labels import labellings
from stepd.core.portfolio.local_search import LocalSearch
from stepd.core.portfolio.moves import DRAWN
from stepd.core.portfolio.points import evaluate
from stepd.core.portfolio.pool import Candidate, Pool
from stepd.core.portfolio.units import make_units
from stepd.core.simulator import simulate_placement

LENGTH, SIZE = 10, 10**6


def three_chains(lab):
    """Three chains down and back, whose outputs are kept until the way back; device 0 is five times as fast as the others."""
    seconds, edges = [], []
    for chain in range(3):
        first = 2 * LENGTH * chain
        for k in range(2 * LENGTH):
            seconds.append([2e-4, 1e-3, 1e-3])
            if k > 0:
                edges.append((first + k - 1, first + k, 0, SIZE))
            if k > LENGTH:
                edges.append((first + 2 * LENGTH - 1 - k, first + k, 0, SIZE))
    links = [(a, b, 1e10, 1e-6) for a in range(3) for b in range(3) if a != b]
    memory = int(2.3 * (LENGTH + 1) * SIZE)
    return lab.make_problem(seconds, edges, links, [memory] * 3, temp=[0] * len(seconds))


def test_a_chain_that_begins_with_room_ends_with_what_fits(lab):
    problem = three_chains(lab)
    pool = Pool(problem)
    pool.try_all([Candidate("a chain a device", np.repeat(np.arange(3), 2 * LENGTH).astype(np.int32))])
    start = pool.best
    spread = simulate_placement(problem, start.point.placement, start.point.priority)
    assert (spread.device_peak_bytes <= ROOMY * pool.prepared.tables.memory).all()
    on_the_fast_one = np.zeros(problem.n_ops, dtype=np.int32)
    tables = pool.prepared.tables
    gathered = evaluate(tables, on_the_fast_one, pool.bias, pool.empty, start.weight, pool.tail, pool.penalty, True, np.inf)
    assert gathered.seconds < spread.step_seconds  # what tempts
    assert gathered.overflow > 0.0
    units = make_units(pool.prepared, labellings(problem))
    arms = len(units.level_pointer) - 1 + DRAWN
    for seed in range(4):
        walk = Walk(400, 0.02, 0.0, np.arange(1, arms + 1) / arms, 0.3 * (seed % 2), np.inf if seed < 2 else 0.01)
        allowed, rng = pool.prepared.group_seconds, new_rng(seed)
        best = anneal(tables, units, allowed, start.point, start.weight, pool.tail, pool.penalty, True, walk, rng).best
        step = simulate_placement(problem, best.placement, best.priority)
        assert step.feasible
        assert step.step_seconds == best.seconds == best.cost < start.point.cost


def test_a_shorter_step_that_does_not_fit_is_made_to_fit(lab):
    problem = three_chains(lab)
    pool = Pool(problem)
    chain = np.repeat(np.arange(3), 2 * LENGTH).astype(np.int32)
    slow, tempting = np.minimum(chain, 1) + 1, np.zeros_like(chain)
    pool.try_all([Candidate("no fast device", slow.astype(np.int32)), Candidate("all on the fast one", tempting)])
    assert pool.best.origin == "no fast device"
    assert [entry.origin for entry in pool.tempting()] == ["all on the fast one"]
    search = LocalSearch(pool, make_units(pool.prepared, labellings(problem)), 0, map)
    for _ in range(2):
        search.round(0.0)
    made_fit = next(entry for entry in pool.entries if entry.origin == "all on the fast one")
    step = simulate_placement(problem, made_fit.point.placement, made_fit.point.priority)
    assert step.feasible
    assert step.step_seconds == made_fit.point.cost
    assert pool.tempting() == []


def test_where_nothing_fits_the_search_goes_on_with_what_is_missing_least(lab):
    problem = lab.make_problem(
        [[1.0, 1.0]] * 4, [(0, 1, 0, 9), (0, 2, 0, 9), (0, 3, 0, 9)], [(0, 1, 1.0, 0.0), (1, 0, 1.0, 0.0)], [5, 5]
    )
    pool = Pool(problem)
    pool.try_all([Candidate("one device", np.zeros(4, dtype=np.int32))])
    missing = pool.best.point.overflow
    search = LocalSearch(pool, make_units(pool.prepared, labellings(problem)), 0, map)
    for _ in range(3):
        search.round(0.0)
    assert search.rounds == 3
    assert 0.0 < pool.best.point.overflow <= missing


def test_a_chain_from_what_cannot_run_ends_where_it_begins(lab):
    problem = lab.make_problem([[1.0, 1.0]] * 2, [(0, 1, 0, 9)], [(0, 1, 1.0, 0.0)], [10**6] * 2)
    pool = Pool(problem)
    units = make_units(pool.prepared, labellings(problem))
    arms = len(units.level_pointer) - 1 + DRAWN
    for seed in range(4):
        start = pool.in_first_order(Candidate("against the link", np.array([1, 0], dtype=np.int32)))
        walk = Walk(50, 0.1, 0.2, np.arange(1, arms + 1) / arms, 0.1, np.inf if seed < 2 else 0.01)
        allowed, rng = pool.prepared.group_seconds, new_rng(seed)
        found = anneal(
            pool.prepared.tables, units, allowed, start.point, start.weight, pool.tail, pool.penalty, pool.track, walk, rng
        )
        assert found.best.placement.tolist() == [1, 0]
        assert found.best.cost == np.inf
        assert not found.tried.any()


def test_ops_of_one_colocation_group_change_places_in_the_order(lab):
    """Three ops that make much, each with a reader that leaves little of it: memory suffices where each reader comes at once, which
    upward ranks put last."""
    edges = [edge for k in range(3) for edge in ((k, 3 + k, 0, 10), (3 + k, 6, 0, 1))]
    problem = lab.make_problem([[1.0]] * 7, edges, [], [13], temp=[10] * 3 + [1] * 4, colocation=[0] * 7)
    pool = Pool(problem)
    pool.try_all([Candidate("the only device", np.zeros(7, dtype=np.int32))])
    assert pool.best.point.overflow > 0.0
    LocalSearch(pool, make_units(pool.prepared, labellings(problem)), 0, map).round(0.0)
    assert pool.best.point.overflow == 0.0
