"""The chain that explains a step: it starts at 0, ends with the step, and has no hole, on random problems too."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.critical_path import critical_path
from stepd.core.problem import Device, Link, Problem
from stepd.core.simulator import simulate_placement


def random_problem(seed: int, n: int, d: int) -> Problem:
    """A random DAG of n ops on d devices in a ring; some ops take no time, so that instants coincide."""
    rng = np.random.default_rng(seed)
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n) if rng.random() < 3 / n]
    src, dst = (np.array([pair[k] for pair in pairs], np.int32) for k in (0, 1))
    ring = [(a, b) for a in range(d) for b in range(d) if (a - b) % d in (1, d - 1)]
    return Problem(
        name="random",
        devices=tuple(Device(f"d{k}", "GPU", 1 << 40) for k in range(d)),
        links=tuple(Link(a, b, float(rng.integers(1, 5)), 0.25) for a, b in ring),
        op_names=tuple(f"op{i}" for i in range(n)),
        op_types=("Op",) * n,
        seconds=rng.integers(0, 4, (n, 1)) * np.ones((1, d)),
        resident_bytes=np.zeros(n, np.int64),
        temp_bytes=np.zeros(n, np.int64),
        colocation=np.full(n, -1, np.int32),
        edge_src=src,
        edge_dst=dst,
        edge_output=rng.integers(0, 2, len(pairs)).astype(np.int32),
        edge_bytes=rng.integers(0, 9, len(pairs)).astype(np.int64),
    )


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 24), st.integers(1, 4))
def test_the_chain_spans_the_step_without_a_hole(seed: int, n: int, d: int) -> None:
    problem = random_problem(seed, n, d)
    rng = np.random.default_rng(seed)
    placement = rng.integers(0, d, n).astype(np.int32)
    simulation = simulate_placement(problem, placement, rng.permutation(n).astype(np.int32))
    chain = critical_path(problem, placement, simulation)
    assert chain[0].start == 0.0
    assert chain[-1].end == simulation.step_seconds
    assert all(a.end == b.start for a, b in itertools.pairwise(chain))
    assert all(segment.device == placement[segment.op] for segment in chain)
