"""One plan for a live session: assemble, calibrate on what was measured, search, and say what each
candidate should cost.

Pure; runs in a planner process. Predictions are corrected by what is in force: the simulator's answer for
it against its measured step time. What was measured of other strategies gives the model's own error, so
that a miss that the models have since learned from no longer stands in the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepd.core.assembly import Assembled, Situation, assemble
from stepd.core.errors import StepdError
from stepd.core.placement import fastt_os_dpos, replicate
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.replicate import simulate, split_costs
from stepd.core.placement.split_problem import split_problem, splittable
from stepd.core.portfolio.start_order import natural_priority
from stepd.core.problem import Float, Index, Problem
from stepd.core.simulator import Simulation, simulate_placement
from stepd.core.strategy import Split, Strategy

LINK_FACTORS = (1.0, 0.5, 0.7, 1.4, 2.0, 2.8, 4.0)
HANDLING_FACTORS = (1.0, 0.0, 0.5, 0.7, 1.4, 2.0)
CALIBRATED_ON = 4
"""Strategies that the link factor is chosen by, the newest."""

RESCHEDULED_OPS = 100_000
"""OS-DPOS may schedule this many ops anew, over all splits that it tries: about 2 s."""

NEAR = 0.02
"""Two placements are near when ops worth less than this share of the step's device time run elsewhere."""


SplitByName = tuple[str, str, int, tuple[str, ...], tuple[float, ...]]
"""(op, axis, parts, devices, weights), as a strategy names them."""


@dataclass(frozen=True)
class Measured:
    """A strategy that ran. `placement`: device by op (ops that it leaves out stay where they are today);
    `in_force`: now.
    """

    id: str
    placement: Mapping[str, str]
    priority: Mapping[str, int]
    seconds: float
    lost: bool = False
    in_force: bool = False
    splits: tuple[SplitByName, ...] = ()


@dataclass(frozen=True, eq=False)
class Candidate:
    """A strategy with its predictions. seconds: calibrated; simulated_seconds: as the simulator says. int32
    [n] columns.
    """

    placement: Index
    priority: Index
    seconds: float
    simulated_seconds: float
    peak_bytes: tuple[int, ...]
    busy_fraction: tuple[float, ...]
    lower_bound_seconds: float
    algorithm: str
    near_lost: bool
    splits: tuple[Split, ...] = ()


@dataclass(frozen=True)
class Calibration:
    """factor: measured over simulated, of what is in force. error: relative, of the model on the other measured strategies.

    link_factor: how much slower transfers act than they were measured alone; handling_factor: how much more time of the devices
    at their ends they take than assumed. Both chosen so that strategies that ran are predicted best.
    """

    factor: float
    error: float
    link_factor: float
    handling_factor: float
    today_simulated_seconds: float


Report = Callable[[Strategy], None]
Search = Callable[[Problem, Sequence[Strategy], Report], None]
"""(problem, strategies to start from, whom to tell of every better strategy)."""


@dataclass(frozen=True, eq=False)
class Planning:
    """One plan in progress: what was assembled and how far the model can be trusted. `consider` judges what
    a search finds.
    """

    assembled: Assembled
    calibration: Calibration
    order: Index
    ordered: bool
    lost: tuple[Index, ...]
    lost_splits: tuple[set[int], ...]
    _best: list[tuple[int, float]]

    def consider(self, found: Strategy) -> Candidate | None:
        """A candidate when `found` is better than all before it; one near a strategy that lost comes after
        all others.
        """
        problem = self.assembled.problem
        if found.splits:
            return self._consider_split(found)
        try:
            simulation = simulate_placement(problem, found.placement, found.priority if self.ordered else self.order)
        except StepdError:
            return None  # a starting point that breaks a kernel limit, such as today's where the runtime fell back
        near = any(distance(problem, found.placement, other) < NEAR for other in self.lost)
        rank = (int(simulation.overflow_bytes.sum()) + int(near), simulation.step_seconds)
        if self._best and rank >= self._best[0]:
            return None
        self._best[:] = [rank]
        return _candidate(found, simulation, self.calibration.factor, near)

    def _consider_split(self, found: Strategy) -> Candidate | None:
        """As `consider`, of a strategy with splits. Its order is that of the runtime: what runs in parts is not ordered."""
        problem = self.assembled.problem
        base = splittable(problem)
        seconds, facts = simulate(
            base, split_problem(base, found.splits, split_costs(problem)), replace(found, priority=self.order)
        )
        near = {split.op for split in found.splits} in self.lost_splits
        rank = (int(not facts["feasible"]) + int(near), seconds)
        if self._best and rank >= self._best[0]:
            return None
        self._best[:] = [rank]
        return Candidate(
            placement=found.placement,
            priority=self.order,
            seconds=seconds * self.calibration.factor if facts["feasible"] else float("inf"),
            simulated_seconds=seconds,
            peak_bytes=facts["peak_bytes"],
            busy_fraction=tuple(busy / max(seconds, 1e-12) for busy in facts["busy_seconds"]),
            lower_bound_seconds=0.0,
            algorithm=_algorithm(found),
            near_lost=near,
            splits=found.splits,
        )


def begin(situation: Situation, measured: Sequence[Measured], *, ordered: bool = False) -> Planning:
    """Assemble and calibrate. `ordered`: the runtime will enforce priorities; else they are not counted on. Raises ProblemError."""
    assembled, calibration = calibrate(assemble(situation), measured)
    order = natural_priority(assembled.problem)
    lost = tuple(
        _columns(assembled.problem, assembled.today, order, known)[0] for known in measured if known.lost and not known.splits
    )
    index = {name: k for k, name in enumerate(assembled.problem.op_names)}
    lost_splits = tuple({index.get(split[0], -1) for split in known.splits} for known in measured if known.lost and known.splits)
    return Planning(assembled, calibration, order, ordered, lost, lost_splits, [])


def run(planning: Planning, search: Search, tell: Callable[[Candidate], None]) -> None:
    """Today's placement, every single device and data parallelism by splitting, then what `search` finds; `tell`
    hears of each better candidate at once.
    """
    problem = planning.assembled.problem

    def report(found: Strategy) -> None:
        candidate = planning.consider(found)
        if candidate is not None:
            tell(candidate)

    today = _strategy(problem, planning.assembled.today, planning.order, "today")
    for start in (today, *single_devices(problem, planning.order)):
        report(start)
    for replicated in replicate.candidates(problem, planning.order):
        report(replicated)
    search(problem, [today], report)


def single_ops_split(problem: Problem) -> Strategy:
    """What OS-DPOS finds in a bounded amount of work, for searches that know nothing of splits."""
    costs = split_costs(problem)
    parameters = {
        "overhead_seconds": costs.overhead_seconds,
        "copy_bytes_per_second": costs.copy_bytes_per_second,
        "patience": 3,
    }
    work = max(4, min(40, RESCHEDULED_OPS // max(problem.n_ops, 1)))
    return fastt_os_dpos.place(problem, PlanOptions(max_work=work, parameters=parameters))


def _candidate(found: Strategy, simulation: Simulation, factor: float, near: bool) -> Candidate:
    bound = found.planner.get("lower_bound_seconds", 0.0)
    return Candidate(
        placement=found.placement,
        priority=found.priority,
        seconds=simulation.step_seconds * factor if simulation.feasible else float("inf"),
        simulated_seconds=simulation.step_seconds,
        peak_bytes=tuple(int(peak) for peak in simulation.device_peak_bytes),
        busy_fraction=tuple(float(busy) / max(simulation.step_seconds, 1e-12) for busy in simulation.device_busy_seconds),
        lower_bound_seconds=float(bound or 0.0),
        algorithm=_algorithm(found),
        near_lost=near,
    )


def calibrate(assembled: Assembled, measured: Sequence[Measured]) -> tuple[Assembled, Calibration]:
    """Simulate what ran, compare with what was measured, and slow the links down (or up) so that both agree best.

    Without a measurement: factor 1, error 0. A strategy that fits neither graph nor devices any more is passed over.
    """
    ran = [known for known in measured if known.seconds > 0]
    others = [known for known in ran if not known.in_force][-CALIBRATED_ON:]
    used = [*others, *(known for known in ran if known.in_force)]
    best = _trial(assembled, used, 1.0, 1.0)
    if not others:
        return best[1], best[2]
    if any(link.handling_seconds > 0 for link in assembled.problem.links):
        trials = (_trial(assembled, used, 1.0, factor) for factor in HANDLING_FACTORS[1:])
        best = min((best, *trials), key=lambda trial: trial[0])
    handling = best[2].handling_factor
    best = min((best, *(_trial(assembled, used, factor, handling) for factor in LINK_FACTORS[1:])), key=lambda trial: trial[0])
    return best[1], best[2]


def _trial(
    assembled: Assembled, measured: Sequence[Measured], link_factor: float, handling_factor: float
) -> tuple[float, Assembled, Calibration]:
    """(how badly it explains what was measured, the scaled problem, its calibration)."""
    scaled = _with_links(assembled, link_factor, handling_factor)
    calibration = _compare(scaled, measured, link_factor, handling_factor)
    # A little preference for the links as they are: one strategy alone could be explained by many things.
    loss = calibration.error + 0.02 * abs(math.log(link_factor)) + 0.02 * abs(math.log2(max(handling_factor, 0.25)))
    return loss, scaled, calibration


def _compare(assembled: Assembled, measured: Sequence[Measured], link_factor: float, handling_factor: float) -> Calibration:
    problem = assembled.problem
    order = natural_priority(problem)
    simulated: list[tuple[Measured, float]] = []
    for known in measured:
        placement, priority = _columns(problem, assembled.today, order, known)
        try:
            simulated.append((known, _step_seconds(problem, placement, priority, known)))
        except StepdError:
            continue
    now = next(((k.seconds, seconds) for k, seconds in simulated if k.in_force and seconds > 0), None)
    factor = now[0] / now[1] if now else 1.0
    misses = [abs(seconds * factor / k.seconds - 1.0) for k, seconds in simulated if not k.in_force]
    return Calibration(factor, float(np.mean(misses)) if misses else 0.0, link_factor, handling_factor, now[1] if now else 0.0)


def _step_seconds(problem: Problem, placement: Index, priority: Index, known: Measured) -> float:
    """What the simulator says of a strategy that ran. Raises StepdError when it does not fit the problem."""
    if not known.splits:
        return simulate_placement(problem, placement, priority).step_seconds
    index = {name: k for k, name in enumerate(problem.op_names)}
    device = {item.name: k for k, item in enumerate(problem.devices)}
    splits = tuple(
        Split(index[op], axis, parts, tuple(device[name] for name in devices), tuple(weights))
        for op, axis, parts, devices, weights in known.splits
        if op in index and all(name in device for name in devices)
    )
    base = splittable(problem)
    strategy = Strategy(problem.name, placement, priority, float("inf"), splits)
    return simulate(base, split_problem(base, splits, split_costs(problem)), strategy)[0]


def _with_links(assembled: Assembled, factor: float, handling_factor: float) -> Assembled:
    if factor == handling_factor == 1.0:
        return assembled
    links = tuple(
        replace(
            link,
            bytes_per_second=link.bytes_per_second / factor,
            latency_seconds=link.latency_seconds * factor,
            handling_seconds=link.handling_seconds * handling_factor,
            handling_seconds_per_byte=link.handling_seconds_per_byte * handling_factor,
        )
        for link in assembled.problem.links
    )
    return replace(assembled, problem=replace(assembled.problem, links=links))


def _columns(problem: Problem, today: Index, order: Index, known: Measured) -> tuple[Index, Index]:
    """Placement and priority of a strategy by names, as columns of this problem."""
    device = {item.name: k for k, item in enumerate(problem.devices)}
    placement = today.copy()
    for i, name in enumerate(problem.op_names):
        placement[i] = device.get(known.placement.get(name, ""), today[i])
    if not known.priority:
        return placement, order
    keys = [known.priority.get(name, 1 << 30) for name in problem.op_names]
    return placement, _ranks(np.lexsort((order, np.array(keys))))


def _ranks(ops: Index | np.ndarray[tuple[int], np.dtype[np.intp]]) -> Index:
    ranks = np.empty(len(ops), dtype=np.int32)
    ranks[ops] = np.arange(len(ops), dtype=np.int32)
    return ranks


def single_devices(problem: Problem, order: Index) -> list[Strategy]:
    """Every device alone, as far as kernels and pins allow: what cannot run there stays at its cheapest
    device.
    """
    cheapest = np.argmin(problem.seconds, axis=1).astype(np.int32)
    result = []
    for k, device in enumerate(problem.devices):
        here = np.isfinite(problem.seconds[:, k])
        if here.any():
            placement = np.where(here, k, cheapest).astype(np.int32)
            result.append(_strategy(problem, placement, order, f"single device {device.name}"))
    return result


def _strategy(problem: Problem, placement: Index, priority: Index, algorithm: str) -> Strategy:
    return Strategy(problem.name, placement.copy(), priority.copy(), float("nan"), planner={"algorithm": algorithm})


def distance(problem: Problem, one: Index, other: Index) -> float:
    """Share of the step's device time that runs on another device under `other` than under `one`, 0..1."""
    cost: Float = np.where(np.isfinite(problem.seconds), problem.seconds, 0.0).max(axis=1)
    total = float(cost.sum())
    return float(cost[one != other].sum()) / total if total > 0 else float(np.any(one != other))


def _algorithm(found: Strategy) -> str:
    """Who found it: "heft", "portfolio (layers by name)"."""
    name, origin = found.planner.get("algorithm", "unknown"), found.planner.get("origin")
    return f"{name} ({origin})" if origin else str(name)
