"""Random problems that are known to fit: a placement and an order are planted, and devices get what these need, or a little more.

Graphs and machines are those of `random_problems` and `random_dags`; on every other one what stays in memory is ten times as much,
so that it decides. What is planted: stretches of the topological order, layers with their gradients and weights (by name), regions
grown over the graph, or groups drawn one by one; devices get unequal shares. Of a few orders the one that needs least is planted. A
`lean` plant has then been bettered by a thousand random moves of groups, each of which took memory, so that little else fits.
Nothing here looks at what a planner makes of a problem.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from random_dags import NETWORKS as DAG_NETWORKS
from random_dags import SHAPES, SPEEDS, random_dag
from random_problems import FAMILIES, random_problem

from stepd.core.portfolio.start_order import natural_priority
from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Index, Problem
from stepd.core.simulator import simulate_placement

Random = np.random.Generator
PLANTS = ("stretches", "layers", "lean", "regions", "drawn", "lean")
LEAN_MOVES = 1000
HEAVY = 10
SLACK = (1.0, 1.02, 1.05, 1.1)


def planted(count: int, seed: int, smallest: int = 100, largest: int = 3000) -> Iterator[Problem]:
    """`count` problems of about `smallest` to `largest` ops on 2 to 8 devices, each with at least one strategy that fits."""
    rng = np.random.default_rng([seed, 31])
    shapes = [*sorted(FAMILIES), *sorted(SHAPES)]
    for k in range(count):
        shape, number = shapes[k % len(shapes)], seed * 1000 + k
        ops = int(smallest * (largest / smallest) ** rng.uniform())
        devices = int(rng.integers(2, 9))
        if shape in FAMILIES:
            problem = random_problem(shape, number, ops=ops, devices=devices, unequal=bool(rng.random() < 0.3))
        else:
            problem = random_dag(
                shape,
                number,
                ops=ops,
                devices=devices,
                network=str(rng.choice(DAG_NETWORKS)),
                speeds=str(rng.choice(SPEEDS)),
                dearness=float(rng.choice([0.05, 0.3, 1.0])),
                grouped=bool(rng.random() < 0.4),
            )
        plant, slack, heavy = str(rng.choice(PLANTS)), float(rng.choice(SLACK)), bool(k % 2)
        if heavy:
            problem = replace(problem, resident_bytes=HEAVY * problem.resident_bytes)
        fitted = fit_to(problem, plant_placement(problem, plant, rng), slack)
        yield replace(fitted, name=f"{problem.name}-{plant}-{slack:g}{'-heavy' if heavy else ''}")


def fit_to(problem: Problem, placement: Index, slack: float) -> Problem:
    """`problem` with the memory that `placement` needs on each device under the best of a few orders, times `slack`."""
    least = min((simulate_placement(problem, placement, order).device_peak_bytes for order in _orders(problem)), key=np.sum)
    devices = [
        replace(device, memory_bytes=max(1, int(np.ceil(slack * int(need)))))
        for device, need in zip(problem.devices, least, strict=True)
    ]
    return replace(problem, devices=tuple(devices))


def _orders(problem: Problem) -> tuple[Index, ...]:
    tables = prepare(problem).tables
    return natural_priority(problem), _deep(tables), _deep(tables, backward=True)


def plant_placement(problem: Problem, plant: str, rng: Random) -> Index:
    """Where the planted strategy runs the ops. int32 [n]."""
    prepared = prepare(problem)
    tables, g, d = prepared.tables, prepared.n_groups, problem.n_devices
    share = rng.dirichlet(np.full(d, 4.0))
    if plant == "drawn":
        wish = rng.choice(d, size=g, p=share)
    elif plant in ("stretches", "layers", "lean"):
        first = np.full(g, problem.n_ops)
        if plant == "stretches":
            np.minimum.at(first, tables.group[tables.topological], np.arange(problem.n_ops))
        else:
            np.minimum.at(first, tables.group, _layers(problem))
        wish = np.empty(g, dtype=np.int64)
        wish[np.argsort(first, kind="stable")] = np.searchsorted(np.cumsum(share)[:-1], (np.arange(g) + 0.5) / g)
        wish = rng.permutation(d)[wish]
    else:
        wish = _regions(tables, g, d, share, rng)
    seconds = prepared.group_seconds
    fits = np.isfinite(seconds[np.arange(g), wish])
    home = np.where(fits, wish, np.argmin(seconds, axis=1))
    if plant == "lean":
        home = _lean(problem, home, rng)
    return home[tables.group].astype(np.int32)


def _layers(problem: Problem) -> np.ndarray:
    """By layer and, in a layer, by topological order; where names know no layers, by the latter. int64 [n]."""
    numbers: dict[str, int] = {}
    layer = [
        numbers.setdefault(
            "/".join(name.removeprefix("gradients/").removeprefix("train/update_").split("/")[:2]).split("_grad")[0], len(numbers)
        )
        for name in problem.op_names
    ]
    position = np.empty(problem.n_ops, dtype=np.int64)
    position[prepare(problem).tables.topological] = np.arange(problem.n_ops)
    if len(numbers) > 0.8 * problem.n_ops:
        return position
    order = np.lexsort((position, np.array(layer)))
    position[order] = np.arange(problem.n_ops)
    return position


def _lean(problem: Problem, home: np.ndarray, rng: Random) -> np.ndarray:
    """`home` [g] after random moves of groups to their neighbours' devices, those kept that need less memory."""
    prepared = prepare(problem)
    tables = prepared.tables
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    src, dst = tables.group[tables.output_op[output]], tables.group[tables.reader]
    order = min(
        _orders(problem),
        key=lambda one: simulate_placement(problem, home[tables.group].astype(np.int32), one).device_peak_bytes.sum(),
    )
    best = None
    for _ in range(LEAN_MOVES):
        moved = home.copy()
        if best is not None:
            edge = int(rng.integers(len(src)))
            moved[src[edge]] = moved[dst[edge]]
            if moved[src[edge]] == home[src[edge]] or not np.isfinite(prepared.group_seconds[src[edge], moved[src[edge]]]):
                continue
        peak = simulate_placement(problem, moved[tables.group].astype(np.int32), order).device_peak_bytes
        need = float(peak.sum() + np.sqrt((peak.astype(float) ** 2).sum()))
        if best is None or need <= best:
            best, home = need, moved
    return home


def _regions(tables: Tables, g: int, d: int, share: np.ndarray, rng: Random) -> np.ndarray:
    """One region a device, grown from a random group, the one that is behind its share next."""
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    src, dst = tables.group[tables.output_op[output]], tables.group[tables.reader]
    near: list[list[int]] = [[] for _ in range(g)]
    for a, b in zip(src.tolist(), dst.tolist(), strict=True):
        near[a].append(b)
        near[b].append(a)
    home = np.full(g, -1, dtype=np.int64)
    order = rng.permutation(g).tolist()
    edge: list[list[tuple[float, int]]] = [[] for _ in range(d)]
    size = np.zeros(d)
    at = 0
    for _ in range(g):
        device = int(np.argmin((size + 1) / share))
        group = -1
        while edge[device] and group < 0:
            group = heapq.heappop(edge[device])[1]
            group = group if home[group] < 0 else -1
        while group < 0:
            group = order[at] if home[order[at]] < 0 else -1
            at += group < 0
        home[group] = device
        size[device] += 1
        for other in near[group]:
            if home[other] < 0:
                heapq.heappush(edge[device], (size[device] + 10 * rng.random(), other))
    return home


def _deep(tables: Tables, backward: bool = False) -> Index:
    """Depth first: what was made last is used first. `backward`: from the end, turned round. int32 [n]."""
    n = len(tables.topological)
    producers = [
        tables.output_op[tables.input[a:b]].tolist() for a, b in zip(tables.input_pointer, tables.input_pointer[1:], strict=False)
    ]
    readers: list[list[int]] = [[] for _ in range(n)]
    for op, before in enumerate(producers):
        for producer in before:
            readers[producer].append(op)
    following, awaited = (producers, readers) if backward else (readers, producers)
    left = [len(item) for item in awaited]
    stack = [op for op in range(n) if not left[op]]
    order = []
    while stack:
        op = stack.pop()
        order.append(op)
        for other in following[op]:
            left[other] -= 1
            if not left[other]:
                stack.append(other)
    if backward:
        order.reverse()
    priority = np.empty(n, dtype=np.int32)
    priority[order] = np.arange(n, dtype=np.int32)
    return priority
