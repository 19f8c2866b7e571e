"""Random planning problems, the same for the same seed: training graphs of five families on four kinds of machines.

Families: stacked layers, unrolled recurrent layers, branches that meet again, random graphs, data-parallel towers. Machines:
equal or unequal devices; every pair linked, a ring, pairs of devices on hosts; ample or tight memory. Needs neither TensorFlow
nor the zoo. Nothing here looks at what a planner makes of a problem.

    python tests/benchmarks/random_problems.py OUT [--count 20] [--seed 0] [--ops 200]    # writes problem files
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from random_training import BATCH, Columns, Forward, training

from stepd.core.prepared import prepare
from stepd.core.problem import Device, Link, Problem, SplitChoice
from stepd.core.problem_format import dump_problem
from stepd.core.validation import group_memory

Random = np.random.Generator

NETWORKS = ("mesh", "ring", "hosts")
GIB = 1 << 30


def random_problem(
    family: str,
    seed: int,
    *,
    ops: int = 500,
    devices: int = 4,
    network: str = "mesh",
    unequal: bool = False,
    tight: bool = False,
) -> Problem:
    """A problem of about `ops` ops (within a fifth, where the family allows it).

    network: of NETWORKS. unequal: devices of speeds 1 to 0.4 that suit some kinds of ops better than others; a
    few ops cannot run on one of them. tight: all memory together is 1.5 times what the step needs on one device. Raises KeyError
    for an unknown family.
    """
    rng = np.random.default_rng([seed, sorted(FAMILIES).index(family)])
    forward = Forward()
    FAMILIES[family](forward, rng, ops, devices)
    kinds = [*(["unequal"] if unequal else []), *(["tight"] if tight else [])]
    name = "-".join([family, str(ops), f"{devices}dev", network, *kinds, f"seed{seed}"])
    return _on_machine(name, training(forward), rng, devices, network, unequal, tight)


def suite(count: int, seed: int = 0, ops: int = 500) -> Iterator[Problem]:
    """`count` problems of `ops` / 3 to `ops` * 3 ops: families in turn, machines at random."""
    rng = np.random.default_rng([seed, 99])
    names = sorted(FAMILIES)
    for k in range(count):
        yield random_problem(
            names[k % len(names)],
            seed * 1000 + k,
            ops=int(ops * 3.0 ** rng.uniform(-1, 1)),
            devices=int(rng.choice([2, 4, 8])),
            network=str(rng.choice(NETWORKS)),
            unequal=bool(rng.random() < 0.4),
            tight=bool(rng.random() < 0.35),
        )


def unrolled_lstm(layers: int = 8, steps: int = 177, devices: int = 8, seed: int = 0) -> Problem:
    """`layers` LSTM layers over `steps` time steps: about 24 ops a layer and step."""
    rng = np.random.default_rng([seed, 98])
    forward = Forward()
    _lstm(forward, rng, layers, steps)
    return _on_machine(f"lstm-{layers}x{steps}-{devices}dev", training(forward), rng, devices, "mesh", False, False)


def _stacked(graph: Forward, rng: Random, ops: int, devices: int) -> None:
    """Layers one after the other, each some ops around a large product and a way past them."""
    layers = max(2, int(ops / 18.5))
    scale = float(rng.uniform(0.5, 2))
    at = graph.op("input", "Placeholder", 0.0, _bytes(rng), [])
    for layer in range(layers):
        scope, width = f"layer_{layer}", float(rng.choice([0.5, 1, 1, 2]))
        before = at
        for part in ("attention", "dense"):
            weight = graph.weight(f"{scope}/{part}", int(4e6 * width * scale))
            at = graph.op(f"{scope}/{part}/MatMul", "MatMul", _seconds(rng, 4e-4 * width), _bytes(rng, 4e6), [at], weight)
            at = graph.op(f"{scope}/{part}/Relu", "Relu", _seconds(rng, 3e-5), graph.made[at], [at])
        at = graph.op(f"{scope}/add", "Add", _seconds(rng, 2e-5), graph.made[before], [at, before])
        at = graph.op(f"{scope}/norm", "Norm", _seconds(rng, 4e-5), graph.made[at], [at])


def _recurrent(graph: Forward, rng: Random, ops: int, devices: int) -> None:
    layers = int(rng.integers(2, 9))
    _lstm(graph, rng, layers, max(2, int(ops / (layers * 24))))


def _lstm(graph: Forward, rng: Random, layers: int, steps: int) -> None:
    """Stacked LSTM layers over time; all steps of a layer share its weights."""
    units = float(rng.uniform(0.5, 2))
    size, seconds = int(5e5 * units), 3e-4 * units
    inputs = [graph.op(f"input_{t}", "Placeholder", 0.0, size, []) for t in range(steps)]
    for layer in range(layers):
        weight = graph.weight(f"rnn/cell_{layer}", int(3.2e7 * units))
        state = graph.op(f"rnn/cell_{layer}/zeros", "Fill", 2e-6, size, [])
        hidden = state
        for t in range(steps):
            scope = f"rnn/cell_{layer}/step_{t}"
            joined = graph.op(f"{scope}/concat", "ConcatV2", 8e-6, 2 * size, [inputs[t], hidden])
            gates = graph.op(f"{scope}/MatMul", "MatMul", seconds, 4 * size, [joined], weight)
            parts = [graph.op(f"{scope}/{gate}", "Sigmoid", 7e-6, size, [gates]) for gate in "ijfo"]
            kept = graph.op(f"{scope}/mul", "Mul", 6e-6, size, [parts[2], state])
            new = graph.op(f"{scope}/mul_1", "Mul", 6e-6, size, [parts[0], parts[1]])
            state = graph.op(f"{scope}/add", "Add", 6e-6, size, [kept, new])
            squashed = graph.op(f"{scope}/tanh", "Tanh", 6e-6, size, [state])
            hidden = graph.op(f"{scope}/mul_2", "Mul", 6e-6, size, [squashed, parts[3]])
            inputs[t] = hidden


def _branches(graph: Forward, rng: Random, ops: int, devices: int) -> None:
    """Blocks of parallel branches of different lengths that are joined at each block's end."""
    at = graph.op("input", "Placeholder", 0.0, _bytes(rng), [])
    block = 0
    while len(graph.names) * 3.5 < ops:
        ends = []
        for branch in range(int(rng.integers(2, 7))):
            end = at
            for k in range(int(rng.integers(1, 6))):
                scope = f"block_{block}/branch_{branch}/conv_{k}"
                weight = graph.weight(scope, _bytes(rng, 1e6))
                end = graph.op(f"{scope}/Conv2D", "Conv2D", _seconds(rng, 4e-4, 0.7), _bytes(rng, 3e6), [end], weight)
                end = graph.op(f"{scope}/Relu", "Relu", _seconds(rng, 2e-5), graph.made[end], [end])
            ends.append(end)
        size = sum(graph.made[end] for end in ends)
        at = graph.op(f"block_{block}/concat", "ConcatV2", _seconds(rng, 3e-5), size, ends)
        block += 1


def _random(graph: Forward, rng: Random, ops: int, devices: int) -> None:
    """Ops that read some of the ops shortly before them; few ops are long, a fifth has weights."""
    count = max(3, int(ops / 3.1))
    reach = int(rng.choice([5, 20, 60]))
    for i in range(count):
        some = int(min(i, 1 + rng.poisson(0.7)))
        inputs = sorted({max(0, i - int(rng.integers(1, reach + 1))) for _ in range(some)})
        weight = graph.weight(f"node_{i}", _bytes(rng, 2e6, 1.0)) if rng.random() < 0.2 else -1
        graph.op(f"node_{i}", f"Kind{int(rng.integers(6))}", _seconds(rng, 1.2e-4, 1.2), _bytes(rng, 5e5, 1.2), inputs, weight)


def _towers(graph: Forward, rng: Random, ops: int, devices: int) -> None:
    """One replica of the same layers a device, with the weights shared."""
    layers = max(1, int(ops / (5 * devices + 3)))
    costs = [(_seconds(rng, 5e-4, 0.6), _bytes(rng, 2e6), _bytes(rng, 3e6, 1.0)) for _ in range(layers)]
    shared = [graph.weight(f"layer_{k}", size) for k, (_, _, size) in enumerate(costs)]
    for tower in range(devices):
        at = graph.op(f"tower_{tower}/input", "Placeholder", 0.0, 1 << 20, [], tower=tower)
        for k, (seconds, made, _) in enumerate(costs):
            scope = f"tower_{tower}/layer_{k}"
            at = graph.op(f"{scope}/Conv2D", "Conv2D", seconds, made, [at], shared[k], tower)
            at = graph.op(f"{scope}/Relu", "Relu", seconds / 10, made, [at], tower=tower)


FAMILIES: dict[str, Callable[[Forward, Random, int, int], None]] = {
    "branches": _branches,
    "random": _random,
    "recurrent": _recurrent,
    "stacked": _stacked,
    "towers": _towers,
}


def _seconds(rng: Random, typical: float, spread: float = 0.4) -> float:
    return float(typical * np.exp(spread * rng.standard_normal()))


def _bytes(rng: Random, typical: float = 1e6, spread: float = 0.6) -> int:
    return int(typical * np.exp(spread * rng.standard_normal()))


def _on_machine(name: str, columns: Columns, rng: Random, d: int, network: str, unequal: bool, tight: bool) -> Problem:
    """The columns on `d` devices."""
    n = len(columns.names)
    base = np.array(columns.seconds)
    seconds = np.repeat(base[:, None], d, axis=1)
    group = np.array(columns.group, dtype=np.int32)
    if unequal:
        kinds, kind = np.unique(np.array(columns.kinds), return_inverse=True)
        speed = rng.choice([1.0, 1.0, 0.7, 0.4], size=d)
        seconds = seconds / speed[None, :] * rng.uniform(0.8, 1.25, size=(len(kinds), d))[kind.reshape(-1)]
        barred = np.flatnonzero((rng.random(n) < 0.03) & (group < 0))
        seconds[barred, rng.integers(0, d, size=len(barred))] = np.inf if d > 1 else seconds[barred, 0]
    edges = np.array(columns.edges, dtype=np.int64).reshape(-1, 4)
    user = np.array(columns.user, dtype=np.int32)
    problem = Problem(
        name=name,
        devices=tuple(Device(f"/job:worker/replica:0/task:0/device:GPU:{k}", "GPU", 64 * GIB) for k in range(d)),
        links=tuple(_links(network, d)),
        op_names=tuple(columns.names),
        op_types=tuple(columns.kinds),
        seconds=seconds,
        resident_bytes=np.array(columns.resident, dtype=np.int64),
        temp_bytes=np.array(columns.temp, dtype=np.int64),
        colocation=group,
        edge_src=edges[:, 0].astype(np.int32),
        edge_dst=edges[:, 1].astype(np.int32),
        edge_output=edges[:, 2].astype(np.int32),
        edge_bytes=edges[:, 3].copy(),
        split_choices=tuple(SplitChoice(op, BATCH, d, cut, joined, adds) for op, cut, joined, adds in columns.splits),
        user_devices=user if (user >= 0).any() else None,
    )
    return _with_tight_memory(problem, columns) if tight else problem


def _with_tight_memory(problem: Problem, columns: Columns) -> Problem:
    """All devices together hold 1.5 times what is there on one at the end of the forward pass; each twice the largest group."""
    made = {(src, output): size for src, _, output, size in columns.edges if not columns.names[src].startswith("gradients/")}
    need = sum(columns.resident) + sum(made.values())
    memory = max(int(1.5 * need / problem.n_devices), 2 * int(group_memory(prepare(problem)).max()))
    return replace(problem, devices=tuple(replace(device, memory_bytes=memory) for device in problem.devices))


def _links(network: str, d: int, fast: float = 1.2e10, slow: float = 3e9) -> Iterator[Link]:
    """mesh: every pair; ring: neighbours; hosts: pairs at full rate, the first devices of the pairs at a quarter of it."""
    for a in range(d):
        for b in range(d):
            if a == b:
                continue
            if network == "mesh" or (network == "ring" and (a - b) % d in (1, d - 1)) or (network == "hosts" and a // 2 == b // 2):
                yield Link(a, b, fast, 2e-5)
            elif network == "hosts" and a % 2 == b % 2 == 0:
                yield Link(a, b, slow, 5e-5)


def main() -> None:
    parser = argparse.ArgumentParser(description="write random planning problems as files")
    parser.add_argument("out", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ops", type=int, default=500)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for problem in suite(options.count, options.seed, options.ops):
        path = options.out / f"{problem.name}.json.gz"
        path.write_bytes(gzip.compress(json.dumps(dump_problem(problem)).encode(), 6, mtime=0))
        print(f"{path}: {problem.n_ops} ops, {problem.n_devices} devices")


if __name__ == "__main__":
    main()
