"""Random planning problems and a second simulator, written straight from the text of PROBLEM_FORMAT.

The second simulator shares nothing with the first: it keeps lists of events and sets of waiting ops, computes memory afterwards
from intervals of rounds, and is slow.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import strategies as st

from stepd.core.problem import Device, Link, Problem


def make_problem(seconds, edges, links, memory, resident=None, temp=None, colocation=None, name="p"):
    """A Problem from plain lists. edges: (src, dst, output, bytes); links: (src, dst, bytes_per_second, latency, handling)."""
    n = len(seconds)
    columns = list(zip(*edges, strict=True)) if edges else [[], [], [], []]
    return Problem(
        name=name,
        devices=tuple(Device(f"/device:GPU:{k}", "GPU", m) for k, m in enumerate(memory)),
        links=tuple(Link(*link) for link in links),
        op_names=tuple(f"op{i}" for i in range(n)),
        op_types=("Op",) * n,
        seconds=np.array(seconds, dtype=float).reshape(n, len(memory)),
        resident_bytes=np.array(resident or [0] * n, dtype=np.int64),
        temp_bytes=np.array(temp or [0] * n, dtype=np.int64),
        colocation=np.array(colocation or [-1] * n, dtype=np.int32),
        edge_src=np.array(columns[0], dtype=np.int32),
        edge_dst=np.array(columns[1], dtype=np.int32),
        edge_output=np.array(columns[2], dtype=np.int32),
        edge_bytes=np.array(columns[3], dtype=np.int64),
    )


def replicated(towers, weights, devices, noise=(), colocated=True):
    """A step of `towers` models of one layer for each of `weights` (bytes): forward, backward, gradients averaged, weights updated.

    noise: seconds added to ops in turn, as measured times have it. colocated: whether a weight, its read and update are a group.
    """
    names, kinds, seconds, resident, group, edges = [], [], [], [], [], []

    def op(name, kind, takes, *inputs, holds=0, colocation=-1):
        for src, size in inputs:
            edges.append((src, len(names), 0, size))
        names.append(name)
        kinds.append(kind)
        seconds.append([takes + (noise[len(names) % len(noise)] if noise else 0.0)] * devices)
        resident.append(holds)
        group.append(colocation if colocated else -1)
        return len(names) - 1

    batch = op("batch", "Iterator", 1e-5)
    variables = [op(f"w{k}", "Variable", 0.0, holds=size, colocation=k) for k, size in enumerate(weights)]
    reads = [op(f"w{k}/read", "Identity", 0.0, (v, weights[k]), colocation=k) for k, v in enumerate(variables)]
    gradients = [[] for _ in weights]
    for tower in range(towers):
        made = 100 + tower  # examples of different length
        x, acts = op(f"tower_{tower}/cast", "Cast", 1e-4, (batch, made)), []
        for k, read in enumerate(reads):
            acts.append(x)
            x = op(f"tower_{tower}/layer{k}", "MatMul", 1e-2, (x, made), (read, weights[k]))
        for k in reversed(range(len(weights))):
            grad = op(f"tower_{tower}/gradients/layer{k}", "MatMulGrad", 1e-2, (x, made), (acts[k], made))
            gradients[k].append(grad)
            x = op(f"tower_{tower}/gradients/back{k}", "MatMulBack", 1e-2, (x, made), (reads[k], weights[k]))
    for k, grads in enumerate(gradients):
        total = op(f"sum{k}", "AddN", 1e-4, *((grad, weights[k]) for grad in grads))
        mean = op(f"mean{k}", "Mul", 1e-4, (total, weights[k]))
        op(f"update{k}", "Apply", weights[k] * 1e-9, (mean, weights[k]), (variables[k], 0), colocation=k)
    links = [(a, b, 1e9, 1e-6) for a in range(devices) for b in range(devices) if a != b]
    problem = make_problem(seconds, edges, links, [10**9] * devices, resident, colocation=group)
    return replace(problem, op_names=tuple(names), op_types=tuple(kinds))


@st.composite
def problems(draw, max_ops=14, max_devices=4, memory=(10**6,), one_way=False):
    """Small problems with ties, ops of 0 seconds, control edges, several outputs, groups, kernel limits, missing links, and hubs:
    networks in which every route leads over one device, each way at its own rate. one_way: links may lead to some devices only."""
    n = draw(st.integers(1, max_ops))
    d = draw(st.integers(1, max_devices))
    times = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 3.5])
    uniform = draw(st.booleans())
    seconds = [[draw(times)] * d if uniform else [draw(times) for _ in range(d)] for _ in range(n)]
    shuffled = draw(st.permutations(range(n)))
    edges = []
    for _ in range(draw(st.integers(0, 2 * n))):
        if n < 2:
            break
        a, b = sorted(draw(st.lists(st.integers(0, n - 1), min_size=2, max_size=2, unique=True)))
        output = draw(st.integers(-1, 2))
        size = 0 if output < 0 else draw(st.sampled_from([0, 1, 2, 4, 7]))
        edges.append((shuffled[a], shuffled[b], output, size))
    ring = [(k, (k + 1) % d) for k in range(d)] if d > 1 else []
    present = {pair for pair in itertools.permutations(range(d), 2) if draw(st.integers(0, 2)) > 0}
    if not one_way:
        present |= {pair for pair in ring if pair[0] != pair[1]}
    elif draw(st.booleans()):
        present = {(a, b) for a, b in present if a < b}
    if d > 2 and draw(st.integers(0, 3)) == 0:
        hub = draw(st.integers(0, d - 1))
        present = {pair for k in range(d) if k != hub for pair in ((k, hub), (hub, k))}
    links = [
        (a, b, draw(st.sampled_from([1.0, 1.0, 2.0, 4.0])), draw(st.sampled_from([0.0, 0.0, 0.5, 1.0]))) for a, b in sorted(present)
    ]
    if draw(st.booleans()):
        links = [(*link, draw(st.sampled_from([0.0, 0.5])), draw(st.sampled_from([0.0, 0.25]))) for link in links]
    amount = st.sampled_from([0, 0, 1, 3, 8])
    resident, temp = [draw(amount) for _ in range(n)], [draw(amount) for _ in range(n)]
    colocation = [draw(st.sampled_from([-1, -1, -1, 0, 1])) for _ in range(n)]
    # One device runs everything, so that each group has a device in common.
    for i in range(n):
        for k in range(d - 1):
            if draw(st.integers(0, 9)) == 0:
                seconds[i][k] = float("inf")
    return make_problem(seconds, edges, links, [draw(st.sampled_from(memory)) for _ in range(d)], resident, temp, colocation)


@st.composite
def answers(draw, problem):
    """A valid placement and priority for `problem`."""
    members = defaultdict(list)
    for i, group in enumerate(problem.colocation.tolist()):
        members[group if group >= 0 else ("alone", i)].append(i)
    placement = np.zeros(problem.n_ops, dtype=np.int32)
    for ops in members.values():
        allowed = np.flatnonzero(np.isfinite(problem.seconds[ops]).all(axis=0)).tolist()
        placement[ops] = draw(st.sampled_from(allowed))
    priority = np.array(draw(st.permutations(range(problem.n_ops))), dtype=np.int32)
    return placement, priority


@dataclass
class _Copy:
    """An output on a device, and who still needs it there."""

    size: int
    needed_by: set = field(default_factory=set)


def widest_route(problem, src, dst):
    """All simple paths, the best by (bottleneck, hops, device indices)."""
    links = {(link.src, link.dst): link for link in problem.links}
    if (src, dst) in links:
        return [links[src, dst]]
    between = [k for k in range(problem.n_devices) if k not in (src, dst)]
    paths = []
    for count in range(1, len(between) + 1):
        for middle in itertools.permutations(between, count):
            path = (src, *middle, dst)
            hops = list(itertools.pairwise(path))
            if all(hop in links for hop in hops):
                width = min(links[hop].bytes_per_second for hop in hops)
                paths.append((-width, len(hops), path))
    return [links[hop] for hop in itertools.pairwise(min(paths)[2])]


def reference_simulation(problem, placement, priority):
    """Step time, start, finish, peak bytes by device, and transfers (op, output, destination, start, end), by the text alone."""
    n, d = problem.n_ops, problem.n_devices
    size = defaultdict(int)
    readers = defaultdict(set)
    inputs = defaultdict(set)
    for src, dst, output, nbytes in zip(
        problem.edge_src.tolist(),
        problem.edge_dst.tolist(),
        problem.edge_output.tolist(),
        problem.edge_bytes.tolist(),
        strict=True,
    ):
        size[src, output] = max(size[src, output], nbytes)
        readers[src, output].add(dst)
        inputs[dst].add((src, output))
    held = [{} for _ in range(d)]
    present = [set() for _ in range(d)]
    fixed = [sum(int(problem.resident_bytes[i]) for i in range(n) if placement[i] == k) for k in range(d)]
    running = {}
    waiting = set(range(n))
    start, finish = [None] * n, [None] * n
    free_at = {(link.src, link.dst): 0.0 for link in problem.links}
    in_flight, transfers = [], []
    occupied = [0.0] * d  # until when transfers keep a device from starting an op
    peak = [0] * d
    now = 0.0

    def drop(device, key, who):
        if key in held[device]:
            held[device][key].needed_by.discard(who)
            if not held[device][key].needed_by:
                del held[device][key]

    while True:
        for k in range(d):
            ready = [i for i in waiting if placement[i] == k and inputs[i] <= present[k]]
            if k not in running and ready and occupied[k] <= now:
                op = min(ready, key=lambda i: priority[i])
                waiting.discard(op)
                start[op] = now
                running[k] = (now + float(problem.seconds[op, k]), op)
        for k in range(d):
            used = fixed[k] + sum(copy.size for copy in held[k].values())
            used += int(problem.temp_bytes[running[k][1]]) if k in running else 0
            peak[k] = max(peak[k], used)
        times = [end for end, _ in running.values()] + [end for end, *_ in in_flight]
        times += [
            occupied[k]
            for k in range(d)
            if k not in running and occupied[k] > now and any(placement[i] == k and inputs[i] <= present[k] for i in waiting)
        ]
        if not times:
            break
        now = min(times)
        ended = sorted((op for end, op in running.values() if end == now), key=lambda i: priority[i])
        for op in ended:
            home = int(placement[op])
            del running[home]
            finish[op] = now
            outputs = sorted(output for src, output in readers if src == op)
            for output in outputs:
                copy = _Copy(size[op, output], {i for i in readers[op, output] if placement[i] == home})
                held[home][op, output] = copy
                present[home].add((op, output))
            for target in range(d):
                for output in outputs:
                    if target == home or not any(placement[i] == target for i in readers[op, output]):
                        continue
                    path = widest_route(problem, home, target)
                    begin = max([now] + [free_at[link.src, link.dst] for link in path])
                    lasts = sum(link.latency_seconds for link in path)
                    lasts += size[op, output] / min(link.bytes_per_second for link in path)
                    for link in path:
                        free_at[link.src, link.dst] = begin + lasts
                    handling = max(link.handling_seconds for link in path)
                    handling += max(link.handling_seconds_per_byte for link in path) * size[op, output]
                    if handling:
                        occupied[home] = max(occupied[home], now) + handling
                    held[home][op, output].needed_by.add(("transfer", target))
                    in_flight.append((begin + lasts, op, output, target, handling))
                    transfers.append((op, output, target, begin, begin + lasts))
            for key in inputs[op]:
                drop(home, key, op)
        for item in [item for item in in_flight if item[0] == now]:
            in_flight.remove(item)
            _, op, output, target, handling = item
            if handling:
                occupied[target] = max(occupied[target], running[target][0] if target in running else now) + handling
            present[target].add((op, output))
            held[target][op, output] = _Copy(size[op, output], {i for i in readers[op, output] if placement[i] == target})
            drop(int(placement[op]), (op, output), ("transfer", target))
    return SimpleNamespace(step_seconds=max(finish), start=start, finish=finish, peak=peak, transfers=transfers)


@pytest.fixture(scope="session")
def lab():
    """The helpers above, for test modules."""
    return SimpleNamespace(
        make_problem=make_problem,
        replicated=replicated,
        problems=problems,
        answers=answers,
        reference_simulation=reference_simulation,
        widest_route=widest_route,
    )
