"""Data parallelism by splitting: everything that can be split on the batch, one part a device (FastT, section 5.2's start).

Where a layer's weights are larger than what flows through it, its ops may stay whole: the largest weights are tried in turn, and
stay whole where that makes the simulated step shorter. So convolutions become data parallel and large dense layers do not. A device
that has whole layers to run gets smaller parts of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np

from stepd.core.errors import StrategyError
from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.split_answer import part_placement, part_priority
from stepd.core.placement.split_problem import SplitCosts, SplitProblem, Splittable, shares, split_problem, splittable
from stepd.core.prepared import prepare
from stepd.core.problem import Float, Index, Problem
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import new_state
from stepd.core.strategy import Split, Strategy

BATCH = "batch"
_LAYERS_TRIED = 6
_EVEN = 0.05
_ROUNDS = 3
_LEAST = 0.05


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """The best replicated strategy; without an op that can be split on the batch, the best single device, with
    `planner["parts"]` 0. Parameter: `layers`, how many large weights are tried whole."""
    order = options.order if options.order is not None else prepare(problem).tables.topological.argsort().astype(np.int32)
    found = [*candidates(problem, order, int(options.parameter("layers", _LAYERS_TRIED)))]
    if not found:
        placement = nearest_allowed(prepare(problem), np.zeros(problem.n_ops, dtype=np.int32))
        plain = Strategy(problem.name, placement, order, float("inf"))
        found = [_simulated(splittable(problem), plain, 0)]
    return min(found, key=lambda strategy: (not strategy.planner["feasible"], strategy.predicted_step_seconds))


def candidates(problem: Problem, order: Index, layers: int = _LAYERS_TRIED) -> Iterator[Strategy]:
    """Replicated strategies: over all devices and over two; what stays whole on the first device or shared out by its bytes.

    order: int32 [n], the execution order of the whole ops.
    """
    base = splittable(problem)
    ops = [op for op, axis in base.choices if axis == BATCH]
    speeds = _speeds(problem, ops)
    usable = [int(k) for k in np.argsort(-speeds, kind="stable") if speeds[k] > 0]
    best: Strategy | None = None
    for count in sorted({2, len(usable)} - {0, 1}, reverse=True):
        if count > len(usable):
            continue
        devices = tuple(sorted(usable[:count]))
        splits = tuple(
            Split(op, BATCH, count, devices, _weights(speeds[list(devices)]))
            for op in ops
            if base.choices[op, BATCH].max_parts >= count
        )
        for whole in _whole_ops(base, devices, {split.op for split in splits}):
            strategy = _try(base, Strategy(problem.name, whole, order, float("inf"), splits), count)
            if strategy is None:
                continue
            yield strategy
            if best is None or strategy.predicted_step_seconds < best.predicted_step_seconds:
                best = strategy
    if best is not None:
        layered = [best, *_with_whole_layers(base, best, layers)]
        yield from layered[1:]
        yield from _balanced(base, layered[-1])


def _speeds(problem: Problem, ops: Sequence[int]) -> Float:
    """How fast each device runs these ops, relative; 0 where it cannot run most of them."""
    seconds = problem.seconds[list(ops)]
    runs = np.isfinite(seconds)
    total = np.where(runs, seconds, 0.0).sum(axis=0)
    speeds: Float = (
        np.where(runs.mean(axis=0) > 0.99, 1.0 / np.maximum(total, 1e-12), 0.0) if len(ops) else np.zeros(problem.n_devices)
    )
    return speeds


def _weights(speeds: Float) -> tuple[float, ...]:
    """Shares by speed; none when the devices are about alike."""
    share = speeds / speeds.sum()
    return () if np.ptp(share) < _EVEN * share.max() else tuple(round(float(s), 3) for s in share)


def _whole_ops(base: Splittable, devices: tuple[int, ...], split: AbstractSet[int]) -> Iterator[Index]:
    """Placements of what is not split: all on one device, or groups that keep bytes shared out, each with what leads to it."""
    problem, prepared = base.problem, base.prepared
    first = np.full(problem.n_ops, devices[0], dtype=np.int32)
    yield nearest_allowed(prepared, first)
    shared = first.copy()
    load = dict.fromkeys(devices, 0)
    for group in np.argsort(-prepared.group_resident, kind="stable"):
        if not prepared.group_resident[group]:
            break
        device = min(load, key=lambda k: load[k])
        load[device] += int(prepared.group_resident[group])
        shared[prepared.tables.group == group] = device
    _follow_readers(base, shared, split)
    yield nearest_allowed(prepared, shared)


def _follow_readers(base: Splittable, placement: Index, split: AbstractSet[int]) -> None:
    """Put sums of gradients, and what is made of them, where the only variable is that takes them: they would be sent twice."""
    tables = base.prepared.tables
    adds = {op for (op, axis), choice in base.choices.items() if op in split and axis == BATCH and choice.adds}
    behind: set[int] = set()
    for op in map(int, tables.topological):
        sources = tables.output_op[tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]]]
        if op in adds or (op not in split and not behind.isdisjoint(map(int, sources))):
            behind.add(op)
    for op in map(int, reversed(tables.topological)):
        group = tables.group[op]
        alone = tables.group_pointer[group + 1] - tables.group_pointer[group] == 1
        if op not in behind or not alone or base.prepared.group_resident[group]:
            continue
        outputs = range(tables.output_pointer[op], tables.output_pointer[op + 1])
        readers = [r for o in outputs for r in tables.reader[tables.reader_pointer[o] : tables.reader_pointer[o + 1]]]
        places = {int(placement[r]) for r in readers}
        if len(places) == 1:
            placement[op] = places.pop()


def _try(base: Splittable, strategy: Strategy, parts: int) -> Strategy | None:
    try:
        return _simulated(base, strategy, parts)
    except StrategyError:
        return None


def _simulated(base: Splittable, strategy: Strategy, parts: int) -> Strategy:
    split = split_problem(base, strategy.splits, split_costs(base.problem))
    seconds, facts = simulate(base, split, strategy)
    return replace(strategy, predicted_step_seconds=seconds, planner={"algorithm": "replicate", "parts": parts, **facts})


def split_costs(problem: Problem) -> SplitCosts:
    """What parts, cuts and joins cost on the devices of a problem: memory of a host is slower than a GPU's."""
    host = all(device.type == "CPU" for device in problem.devices)
    return SplitCosts(2e-6, 5e9) if host else SplitCosts()


def simulate(base: Splittable, split: SplitProblem, strategy: Strategy) -> tuple[float, dict[str, Any]]:
    """Step time of a strategy with its splits carried out, and feasible, peak_bytes and busy_seconds by device."""
    tables = split.prepared.tables
    placement = part_placement(base, split, strategy.placement, strategy.splits)
    if not np.isfinite(tables.seconds[np.arange(len(placement)), placement]).all():
        raise StrategyError("a part is on a device that cannot run it")
    state = new_state(tables)
    priority = part_priority(split, strategy.priority)
    seconds = float(run_step(tables, state, placement, priority, np.zeros(len(placement)), np.inf, True))
    if not np.isfinite(seconds):
        raise StrategyError("no path of links connects the parts")
    return seconds, {
        "feasible": bool(np.all(state.peak <= tables.memory)),
        "peak_bytes": [int(peak) for peak in state.peak],
        "busy_seconds": [float(busy) for busy in state.busy],
    }


def _with_whole_layers(base: Splittable, best: Strategy, layers: int) -> Iterator[Strategy]:
    """`best` with the ops of large weights whole, as long as that helps."""
    for ops in _layers(base, best.splits)[:layers]:
        fewer = tuple(split for split in best.splits if split.op not in ops)
        found = _try(base, replace(best, splits=fewer), int(best.planner["parts"]))
        if found is not None and found.predicted_step_seconds < best.predicted_step_seconds:
            best = found
            yield best


def _balanced(base: Splittable, best: Strategy) -> Iterator[Strategy]:
    """`best` with other shares, as long as that helps: work goes from the busiest device to the others."""
    for _ in range(_ROUNDS):
        devices = best.splits[0].devices if best.splits else ()
        if len({split.devices for split in best.splits}) != 1:
            return
        busy = np.array(best.planner["busy_seconds"])[list(devices)]
        share = np.array(shares(best.splits[0]))
        cut = float(base.problem.seconds[[split.op for split in best.splits]][:, list(devices)].max(axis=1).sum())
        weights = np.maximum(share + (busy.mean() - busy) / max(cut, 1e-12), _LEAST)
        rounded = tuple(round(float(w), 3) for w in weights / weights.sum())
        found = _try(base, replace(best, splits=tuple(replace(s, weights=rounded) for s in best.splits)), len(devices))
        if found is None or found.predicted_step_seconds >= best.predicted_step_seconds:
            return
        best = found
        yield best


def _layers(base: Splittable, splits: Sequence[Split]) -> list[set[int]]:
    """The split ops of each large weight: those that need all of it, and those that make its gradient in parts. Largest first."""
    size: dict[int, int] = {}
    readers: dict[int, set[int]] = {}
    makers: dict[int, set[int]] = {}
    values: dict[int, set[int]] = {}
    for split in splits:
        choice = base.choices[split.op, split.axis]
        for output, cut in zip(base.inputs[split.op], choice.cut_bytes, strict=False):
            if cut == 0:
                size[output] = int(base.prepared.tables.output_bytes[output])
                readers.setdefault(output, set()).add(split.op)
            elif cut > 0:
                values.setdefault(split.op, set()).add(output)
        if choice.adds and choice.joined_bytes:
            makers.setdefault(choice.joined_bytes[0], set()).add(split.op)
    found = []
    for output in sorted(size, key=lambda o: -size[o]):
        mine = readers[output]
        flowing = set().union(*(values.get(op, set()) for op in mine))
        gradients = {op for op in makers.get(size[output], set()) if values.get(op, set()) & flowing}
        found.append(mine | gradients)
    return found
