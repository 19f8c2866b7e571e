"""What people who know a model write into its code by hand: a layer a device, a tower a device, equal stretches of layers.

It reads names only ("layer3", "cell_2", "tower_1", "block4"), independent of the planner's own reading of structure, so that the
planner can be judged by it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from stepd.core.errors import StepdError
from stepd.core.placement.orders import order_for
from stepd.core.prepared import prepare
from stepd.core.problem import Index, Problem
from stepd.core.simulator import simulate_placement
from stepd.core.strategy import Strategy

_NUMBERED = re.compile(r"([A-Za-z]+)[_-]?(\d+)(?=[/_]|$)")


def expert_answers(problem: Problem) -> Iterator[Strategy]:
    """A strategy for every numbered family of scopes, device count and order of execution."""
    families: dict[str, dict[int, int]] = defaultdict(dict)
    for op, name in enumerate(problem.op_names):
        for base, number in _NUMBERED.findall(name.rpartition("/")[0]):
            families[base].setdefault(op, int(number))
    for base, number_of in families.items():
        numbers = sorted(set(number_of.values()))
        if len(numbers) < 2 or len(number_of) < 0.3 * problem.n_ops:
            continue
        part = np.full(problem.n_ops, -1, dtype=np.int32)
        part[list(number_of)] = np.searchsorted(numbers, list(number_of.values()))
        _follow(problem, part)
        for devices in sorted({min(problem.n_devices, len(numbers)), min(problem.n_devices, 4), min(problem.n_devices, 2)}):
            for way in ("in turn", "stretches"):
                home = part % devices if way == "in turn" else part * devices // len(numbers)
                for order in ("rank", "placed-rank", "ready"):
                    answer = _answer(problem, home.astype(np.int32), order, f"{base}: {way} over {devices}, {order}")
                    if answer is not None:
                        yield answer


def _follow(problem: Problem, part: Index) -> None:
    """Ops without a number go with a neighbour that has one: the first of their inputs, else the first reader."""
    order = prepare(problem).tables.topological
    inputs, readers = defaultdict(list), defaultdict(list)
    for a, b in zip(problem.edge_src.tolist(), problem.edge_dst.tolist(), strict=True):
        inputs[b].append(a)
        readers[a].append(b)
    for near, ops in ((inputs, order), (readers, order[::-1])):
        for op in ops.tolist():
            if part[op] < 0:
                part[op] = next((part[other] for other in near[op] if part[other] >= 0), -1)
    part[part < 0] = 0


def _answer(problem: Problem, home: Index, order: str, origin: str) -> Strategy | None:
    tables = prepare(problem).tables
    group_home = np.zeros(len(tables.group_pointer) - 1, dtype=np.int32)
    group_home[tables.group[::-1]] = home[::-1]
    allowed = np.isfinite(prepare(problem).group_seconds)
    fits = allowed[np.arange(len(group_home)), group_home]
    placement = np.where(fits, group_home, np.argmax(allowed, axis=1)).astype(np.int32)[tables.group]
    try:
        priority = order_for(problem, placement, order)
        simulation = simulate_placement(problem, placement, priority)
    except StepdError:
        return None
    facts = {"algorithm": "expert placements", "origin": origin}
    return Strategy(problem.name, placement, priority, simulation.step_seconds, planner=facts)
