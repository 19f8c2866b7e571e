"""Data parallelism by splitting: everything that can be split on the batch, one part a device (FastT, section 5.2's start).

Where a layer's weights are larger than what flows through it, its ops may stay whole, on the device that has its weight, or all be
cut along the weight: the largest weights are tried in turn, on each device, and stay so where the simulated step is shorter.
So convolutions become data parallel and large dense layers model or tensor parallel. A device that has whole layers to run gets
smaller parts of the others.
Gradients of more than two devices are added up at once, by a tree or in slices, whichever is shortest over their links.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from stepd.core.errors import StrategyError
from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.orders import placed_costs_of
from stepd.core.placement.ranks import by_rank, upward_ranks
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.sharing_out import Shares, least_first
from stepd.core.placement.sliced_layers import sliced
from stepd.core.placement.split_answer import kept_priority, part_placement, part_priority, read_off
from stepd.core.placement.split_problem import SplitCosts, SplitProblem, Splittable, shares, split_problem, splittable
from stepd.core.placement.split_sums import ways_to_add_up
from stepd.core.placement.sums import SHAPES, Into
from stepd.core.placement.whole_layers import between, follow_readers, layers, with_layer_on, with_takers_of_terms
from stepd.core.prepared import prepare
from stepd.core.problem import Float, Index, Problem
from stepd.core.simulation_kernel import run_step
from stepd.core.simulation_state import new_state
from stepd.core.strategy import Split, Strategy

BATCH = "batch"
_LAYERS_TRIED = 6
TRIED_OPS = 400_000
"""Ops of all problems together that are simulated for whole layers: under a second."""
_EVEN = 0.05
_ALIKE = 1.25
"""Devices of one type that differ by less are taken for equally fast: two cores of one processor have measured 1.21 apart."""
_ROUNDS = 3
_LEAST = 0.05
_WORTH_ORDER = 0.98
"""An order of its own makes the step shorter by two hundredths at least: keeping one costs about as much, and without one the
runtime fills a device's waits with whatever is ready."""
_WORTH_WHOLE = 0.97
"""Layers that stay whole make the step shorter by three hundredths at least: what is less, waiting for their device takes back."""
_WORTH_SHARES = 0.97
"""Other shares make the step shorter by three hundredths at least: like devices measure that much apart by chance, and a share that
is off by one hundredth keeps a device waiting for as much of the step."""
_WORTH_ONE_HOME = 0.98
"""All variables on one device make the step shorter by two hundredths at least: that device alone sends all weights at first, and
adds up and updates at last, which costs a little more than it seems."""
_WORTH = 0.999
"""A sum that is not added up at once makes the step shorter by a thousandth at least."""


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


def candidates(problem: Problem, order: Index, most: int = _LAYERS_TRIED, live: bool = False) -> Iterator[Strategy]:
    """Replicated strategies: over all devices and over two; what stays whole on the first device or shared out by its bytes.

    order: int32 [n], the execution order of the whole ops. live: see Splittable.
    """
    ops = [choice.op for choice in problem.split_choices if choice.axis == BATCH]
    problem = _evened(problem, ops)
    base = splittable(problem, live)
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
        wholes = _whole_ops(base, devices, {split.op for split in splits})
        tried = [_try(base, Strategy(problem.name, whole, order, float("inf"), splits), count) for whole in wholes]
        for strategy in _worth_one_home(tried):
            yield strategy
            if best is None or strategy.predicted_step_seconds < best.predicted_step_seconds:
                best = strategy
    if best is not None:
        layered = [best, *_with_whole_layers(base, best, most)]
        yield from layered[1:]
        balanced = [layered[-1], *_balanced(base, layered[-1])]
        yield from balanced[1:]
        summed = [balanced[-1], *_with_sums(base, balanced[-1])]
        yield from summed[1:]
        yield from in_order(base, summed[-1])


def _evened(problem: Problem, ops: Sequence[int]) -> Problem:
    """The problem with devices of one type that are about as fast in `ops` taken for equally fast in everything.

    What they measure apart is mostly what else went on: a device that sends and adds up more is slower in all its ops meanwhile.
    """
    speeds, seconds = _speeds(problem, ops), problem.seconds.copy()
    for kind in {device.type for device in problem.devices}:
        alike = [k for k, device in enumerate(problem.devices) if device.type == kind and speeds[k] > 0]
        if len(alike) > 1 and speeds[alike].max() < _ALIKE * speeds[alike].min():
            both = np.isfinite(seconds[:, alike]).all(axis=1)
            seconds[np.ix_(both, alike)] = seconds[np.ix_(both, alike)].mean(axis=1, keepdims=True)
    return replace(problem, seconds=seconds)


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
    kept = np.flatnonzero(prepared.group_resident > 0)
    size = np.repeat(prepared.group_resident[kept, None].astype(np.float64), len(devices), axis=1)
    home = np.full(prepared.n_groups, devices[0], dtype=np.int32)
    home[kept] = np.array(devices)[least_first(Shares(size, np.zeros(len(devices))))]
    shared = home[prepared.tables.group]
    adds = {op for (op, axis), choice in base.choices.items() if op in split and axis == BATCH and choice.adds}
    follow_readers(base, shared, split, adds)
    yield nearest_allowed(prepared, shared)


def _worth_one_home(tried: Sequence[Strategy | None]) -> list[Strategy]:
    """`tried`: with all variables on one device, and with them shared out. The first stays out where it gains too little."""
    one, shared = tried
    if one is not None and shared is not None and one.predicted_step_seconds > _WORTH_ONE_HOME * shared.predicted_step_seconds:
        return [shared] if shared.planner["feasible"] else [one, shared]
    return [strategy for strategy in tried if strategy is not None]


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
    priority = (kept_priority if base.live else part_priority)(split, strategy.priority)
    seconds = float(run_step(tables, state, placement, priority, np.zeros(len(placement)), np.inf, True))
    if not np.isfinite(seconds):
        raise StrategyError("no path of links connects the parts")
    return seconds, {
        "feasible": bool(np.all(state.peak <= tables.memory)),
        "peak_bytes": [int(peak) for peak in state.peak],
        "busy_seconds": [float(busy) for busy in state.busy],
    }


def _with_whole_layers(base: Splittable, best: Strategy, most: int) -> Iterator[Strategy]:
    """`best` with the layers of the largest weights whole, on whichever device is best for it, or cut along the weight: one more
    layer in each turn."""
    devices, weights = (best.splits[0].devices, best.splits[0].weights) if best.splits else ((), ())
    turns = min(most, TRIED_OPS // max(base.problem.n_ops * len(devices), 1))
    enough = _WORTH_WHOLE * best.predicted_step_seconds
    current, whole, gradients = best, frozenset[int](), frozenset[int]()
    for layer in layers(base, best.splits)[:turns]:
        if layer.ops <= whole:
            continue
        whole |= with_takers_of_terms(base, layer.ops, best.splits)
        gradients |= {op for op in layer.ops if layer.weight not in base.inputs[op]}
        inside = with_takers_of_terms(base, between(base, whole, best.splits), best.splits)
        fresh = (inside - whole) & {split.op for split in current.splits}
        ways = ((), *sliced(base, layer, devices, weights))
        tried = []
        for near, device, slices in product((frozenset[int](), fresh), devices, ways):
            splits = (*(s for s in current.splits if s.axis != BATCH or s.op not in whole | near), *slices)
            placement = with_layer_on(base, current.placement, layer, near, device)
            follow_readers(base, placement, {split.op for split in splits}, gradients)
            placement = nearest_allowed(base.prepared, placement)
            tried.append(_try(base, replace(current, splits=splits, placement=placement), int(best.planner["parts"])))
        found = [strategy for strategy in tried if strategy is not None and strategy.splits]
        if not found:
            return
        current = min(found, key=lambda strategy: strategy.predicted_step_seconds)  # two may help where one does not
        if current.predicted_step_seconds < min(enough, best.predicted_step_seconds):
            best = current
            yield best


def _with_sums(base: Splittable, best: Strategy) -> Iterator[Strategy]:
    """`best` with sums of terms added up in other shapes where that helps: first all in one shape, then the largest in turn."""
    split = split_problem(base, best.splits, split_costs(base.problem))
    ways = ways_to_add_up(base, split, best)
    turns = TRIED_OPS // len(split.origin)

    def with_shapes(chosen: Mapping[int, Into]) -> Strategy | None:
        splits = tuple(replace(s, into=chosen.get(s.op, s.into)) for s in best.splits)
        return _try(base, replace(best, splits=splits), int(best.planner["parts"]))

    alike = [{op: shapes[name] for op, shapes in ways.items() if name in shapes} for name in SHAPES]
    for chosen in [*alike, *({op: into} for op, shapes in ways.items() for into in shapes.values())][:turns]:
        found = with_shapes(chosen) if chosen else None
        if found is not None and found.predicted_step_seconds < _WORTH * best.predicted_step_seconds:
            best = found
            yield best


def in_order(base: Splittable, found: Strategy) -> Iterator[Strategy]:
    """`found` in the order of upward ranks of its parts and whole ops, where that helps."""
    split = split_problem(base, found.splits, split_costs(base.problem))
    placement = part_placement(base, split, found.placement, found.splits)
    ranks = upward_ranks(split.prepared.tables, *placed_costs_of(split.prepared.tables, placement))
    position = np.empty(len(placement), dtype=np.int32)
    position[by_rank(split.prepared, ranks)] = np.arange(len(placement), dtype=np.int32)
    _, priority, _ = read_off(split, placement, position)
    ordered = _try(base, replace(found, priority=priority), int(found.planner["parts"]))
    if ordered is not None and ordered.predicted_step_seconds < _WORTH_ORDER * found.predicted_step_seconds:
        yield ordered


def _balanced(base: Splittable, best: Strategy) -> Iterator[Strategy]:
    """`best` with other shares, where that helps: work goes from the busiest device to the others."""
    current = best
    for _ in range(_ROUNDS):
        devices = current.splits[0].devices if current.splits else ()
        if len({split.devices for split in current.splits}) != 1:
            break
        busy = np.array(current.planner["busy_seconds"])[list(devices)]
        share = np.array(shares(current.splits[0]))
        cut = float(base.problem.seconds[[split.op for split in current.splits]][:, list(devices)].max(axis=1).sum())
        weights = np.maximum(share + (busy.mean() - busy) / max(cut, 1e-12), _LEAST)
        rounded = tuple(round(float(w), 3) for w in weights / weights.sum())
        found = _try(base, replace(current, splits=tuple(replace(s, weights=rounded) for s in current.splits)), len(devices))
        if found is None or found.predicted_step_seconds >= current.predicted_step_seconds:
            break
        current = found
    if current.predicted_step_seconds < _WORTH_SHARES * best.predicted_step_seconds:
        yield current
