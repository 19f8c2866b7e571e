"""Random planning problems that are no training graphs: task graphs of textbook shapes, the same for the same seed.

Families: layered random graphs, forks and joins, in- and out-trees, elimination (Cholesky's task graph), butterflies (FFT), a
stencil swept over time, pipelines of chains that exchange now and then, and forward and backward chains that keep their outputs.
Machines: every pair linked, a line, a star, hosts; links at a rate that makes transfers cheap, even or dear beside the ops; equal,
unequal and unrelated devices; colocation groups drawn at random; ample or tight memory. Names say nothing. It shares no rule with
`random_problems`, and nothing here looks at what a planner makes of a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from stepd.core.portfolio.start_order import natural_priority
from stepd.core.prepared import prepare
from stepd.core.problem import Device, Link, Problem
from stepd.core.simulator import simulate_placement

Random = np.random.Generator
Arcs = list[tuple[int, int]]

NETWORKS = ("mesh", "line", "star", "hosts")
SPEEDS = ("equal", "unequal", "unrelated")


def dags(count: int, seed: int = 0, ops: int = 600) -> Iterator[Problem]:
    """`count` problems of about `ops` / 4 to `ops` * 4 ops: shapes in turn, all else at random."""
    rng = np.random.default_rng([seed, 55])
    shapes = sorted(SHAPES)
    for k in range(count):
        yield random_dag(
            shapes[k % len(shapes)],
            seed * 1000 + k,
            ops=int(ops * 4.0 ** rng.uniform(-1, 1)),
            devices=int(rng.integers(2, 9)),
            network=str(rng.choice(NETWORKS)),
            speeds=str(rng.choice(SPEEDS, p=[0.5, 0.25, 0.25])),
            dearness=float(rng.choice([0.05, 0.3, 1.0, 4.0])),
            grouped=bool(rng.random() < 0.3),
            tight=bool(rng.random() < 0.3),
        )


def random_dag(
    shape: str,
    seed: int,
    *,
    ops: int = 500,
    devices: int = 4,
    network: str = "mesh",
    speeds: str = "equal",
    dearness: float = 1.0,
    grouped: bool = False,
    tight: bool = False,
) -> Problem:
    """A problem of about `ops` ops.

    dearness: mean transfer over mean op, in seconds. grouped: a tenth of the ops in groups of two to five. tight: every device
    holds 1.3 times its share of what a step needs on one device, and no less than twice what the largest group needs. Raises
    KeyError for an unknown shape.
    """
    rng = np.random.default_rng([seed, sorted(SHAPES).index(shape), 7])
    arcs = sorted(set(SHAPES[shape](rng, ops)))
    n = 1 + max(max(pair) for pair in arcs)
    src, dst = np.array(arcs, dtype=np.int32).T
    seconds = _op_seconds(rng, n, devices, speeds)
    size = np.exp(rng.normal(0.0, 0.8, n))
    fastest = float(seconds.min(axis=1).mean())
    rate = float(size.mean()) * 1e6 / max(dearness * fastest, 1e-12)
    group = np.full(n, -1, dtype=np.int32)
    if grouped:
        members = rng.permutation(n)[: n // 10]
        group[members] = np.arange(len(members)) // int(rng.integers(2, 6))
    made = (size * 1e6).astype(np.int64)
    resident = np.where(rng.random(n) < 0.3, rng.integers(0, 4_000_000, n), 0)
    words = [shape, str(n), f"{devices}dev", network, speeds, f"dear{dearness:g}", *(["groups"] if grouped else [])]
    problem = Problem(
        name="-".join([*words, *(["tight"] if tight else []), f"seed{seed}"]),
        devices=tuple(Device(f"/device:GPU:{k}", "GPU", 1 << 50) for k in range(devices)),
        links=tuple(Link(a, b, rate, 0.02 * fastest) for a, b in _pairs(network, devices)),
        op_names=tuple(f"op{k}" for k in range(n)),
        op_types=("Op",) * n,
        seconds=seconds,
        resident_bytes=resident.astype(np.int64),
        temp_bytes=made.copy(),
        colocation=group,
        edge_src=src,
        edge_dst=dst,
        edge_output=np.zeros(len(src), dtype=np.int32),
        edge_bytes=made[src],
    )
    return _tight(problem) if tight else problem


def _op_seconds(rng: Random, n: int, devices: int, speeds: str) -> np.ndarray:
    base = 1e-3 * np.exp(rng.normal(0.0, float(rng.choice([0.2, 0.8])), n))
    if speeds == "unequal":
        return base[:, None] / rng.choice([1.0, 0.6, 0.3], devices)[None, :]
    if speeds == "unrelated":
        return base[:, None] * np.exp(rng.normal(0.0, 0.5, (n, devices)))
    return np.repeat(base[:, None], devices, axis=1)


def _pairs(network: str, d: int) -> Iterator[tuple[int, int]]:
    for a in range(d):
        for b in range(d):
            near = {
                "mesh": True,
                "line": abs(a - b) == 1,
                "star": 0 in (a, b),
                "hosts": a // 2 == b // 2 or a % 2 == b % 2 == 0,
            }[network]
            if a != b and near:
                yield a, b


def _tight(problem: Problem) -> Problem:
    placement = np.full(problem.n_ops, int(np.argmin(problem.seconds.sum(axis=0))), dtype=np.int32)
    peak = int(simulate_placement(problem, placement, natural_priority(problem)).device_peak_bytes.max())
    tables = prepare(problem).tables
    need = np.bincount(tables.group, problem.resident_bytes + 3 * problem.temp_bytes).max()
    memory = max(int(1.3 * peak / problem.n_devices), int(2 * need))
    return replace(problem, devices=tuple(replace(device, memory_bytes=memory) for device in problem.devices))


def _layered(rng: Random, ops: int) -> Arcs:
    """Layers of random width; every op reads some of the layers before."""
    arcs: Arcs = []
    layers: list[list[int]] = []
    n, wide = 0, int(rng.integers(3, max(4, int(ops**0.6))))
    while n < ops:
        layer = list(range(n, n + int(rng.integers(1, 2 * wide))))
        n += len(layer)
        for op in layer:
            for _ in range(int(1 + rng.poisson(0.8)) if layers else 0):
                before = layers[max(0, len(layers) - 1 - int(rng.geometric(0.7)) + 1)]
                arcs.append((int(rng.choice(before)), op))
        layers.append(layer)
    return arcs


def _forks(rng: Random, ops: int) -> Arcs:
    arcs: Arcs = []
    at, n = 0, 1
    while n < ops:
        ends = []
        for _ in range(int(rng.integers(2, 17))):
            end = at
            for _ in range(int(rng.integers(1, 5))):
                arcs.append((end, n))
                end, n = n, n + 1
            ends.append(end)
        arcs += [(end, n) for end in ends]
        at, n = n, n + 1
    return arcs


def _trees(rng: Random, ops: int) -> Arcs:
    """An out-tree, and an in-tree on its leaves."""
    half = max(2, ops // 2)
    parent = [0, *(int(rng.integers(max(0, (k - 1) // 4), k)) for k in range(1, half))]
    arcs = [(parent[k], k) for k in range(1, half)]
    leaves = sorted(set(range(half)) - set(parent[1:]))
    n = half
    while len(leaves) > 1:
        some = int(min(len(leaves), rng.integers(2, 5)))
        arcs += [(leaf, n) for leaf in leaves[:some]]
        leaves = [*leaves[some:], n]
        n += 1
    return arcs


def _elimination(rng: Random, ops: int) -> Arcs:
    """Cholesky's tasks on a matrix of tiles."""
    tiles = max(3, int((6 * ops) ** (1 / 3)))
    number: dict[tuple[int, int, int], int] = {}

    def task(i: int, j: int, k: int) -> int:
        return number.setdefault((i, j, k), len(number))

    arcs: Arcs = []
    for k in range(tiles):
        for i in range(k, tiles):
            for j in range(k, i + 1):
                me = task(i, j, k)
                if k > 0:
                    arcs.append((task(i, j, k - 1), me))
                if j > k:
                    arcs += [(task(i, k, k), me), (task(j, k, k), me)]
                elif i > k:
                    arcs.append((task(k, k, k), me))
    return [(a, b) for a, b in arcs if a != b]


def _butterflies(rng: Random, ops: int) -> Arcs:
    width = 4
    while 2 * width * int(np.log2(2 * width)) < ops:
        width *= 2
    stages = max(2, ops // width)
    bits = int(np.log2(width))
    return [
        (s * width + i, (s + 1) * width + j) for s in range(stages - 1) for i in range(width) for j in (i, i ^ (1 << (s % bits)))
    ]


def _stencil(rng: Random, ops: int) -> Arcs:
    width = int(rng.integers(4, max(5, int(ops**0.5))))
    rows = max(2, ops // width)
    return [
        (r * width + i, (r + 1) * width + j)
        for r in range(rows - 1)
        for i in range(width)
        for j in (i - 1, i, i + 1)
        if 0 <= j < width
    ]


def _chains(rng: Random, ops: int) -> Arcs:
    count = int(rng.integers(2, 24))
    length = max(2, ops // count)
    arcs = [(c * length + k, c * length + k + 1) for c in range(count) for k in range(length - 1)]
    for _ in range(int(ops * float(rng.choice([0.01, 0.1])))):
        a, b = rng.integers(0, count, 2)
        k = int(rng.integers(0, length - 1))
        if a != b:
            arcs.append((int(a) * length + k, int(b) * length + k + 1))
    return arcs


def _there_and_back(rng: Random, ops: int) -> Arcs:
    """A layered graph and its mirror, every op of which also reads what its image made."""
    arcs = _layered(rng, ops // 2)
    n = 1 + max(max(pair) for pair in arcs)
    back = [(2 * n - 1 - b, 2 * n - 1 - a) for a, b in arcs]
    return arcs + back + [(k, 2 * n - 1 - k) for k in range(n)]


SHAPES: dict[str, Callable[[Random, int], Arcs]] = {
    "back": _there_and_back,
    "butterflies": _butterflies,
    "chains": _chains,
    "elimination": _elimination,
    "forks": _forks,
    "layered": _layered,
    "stencil": _stencil,
    "trees": _trees,
}
