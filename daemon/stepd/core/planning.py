"""One plan for a live session: assemble, calibrate on what was measured, search, and say what each
candidate should cost.

Pure; runs in a planner process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepd.core.assembly import Assembled, Situation, assemble
from stepd.core.calibration import Calibration, Measured, calibrate, columns
from stepd.core.enforced import as_enforced
from stepd.core.errors import StepdError
from stepd.core.placement import fastt_os_dpos, replicate
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.replicate import simulate, split_costs
from stepd.core.placement.split_problem import split_problem, splittable
from stepd.core.portfolio.start_order import natural_priority
from stepd.core.problem import Float, Index, Problem
from stepd.core.simulator import Simulation, simulate_placement
from stepd.core.strategy import Split, Strategy

RESCHEDULED_OPS = 100_000
"""OS-DPOS may schedule this many ops anew, over all splits that it tries: about 2 s."""

DOUBT = 0.05
"""What was measured stands until a plan promises to take this share less, or as much as the model is wrong by."""

NEAR = 0.02
"""Two placements are near when ops worth less than this share of the step's device time run elsewhere."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A strategy with its predictions. seconds: calibrated; simulated_seconds: as the simulator says. int32
    [n] columns. enforced: the runtime is to keep its order; not where ops in parts are in no other than the graph's own, unless
    it lets one op run at a time: then also the graph's own is better than whatever becomes ready first.
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
    enforced: bool = True


Report = Callable[[Strategy], None]
Search = Callable[[Problem, Sequence[Strategy], Report], None]
"""(problem, strategies to start from, whom to tell of every better strategy)."""


@dataclass(frozen=True, eq=False)
class Planning:
    """One plan in progress: what was assembled and how far the model can be trusted. `consider` judges what
    a search finds. order: int32 [n], the graph's natural one; order_in_force: as enforced today. ordered: the runtime enforces
    orders; whole_order: one op after the other, and not nearly so.
    kept: strategies that won their trial and are not in force, with the seconds that their steps took.
    """

    assembled: Assembled
    calibration: Calibration
    order: Index
    order_in_force: Index
    ordered: bool
    whole_order: bool
    kept: tuple[tuple[Strategy, float], ...]
    lost: tuple[Index, ...]
    lost_splits: tuple[set[int], ...]
    _best: list[tuple[int, float]]

    def consider(self, found: Strategy, measured: float = 0.0) -> Candidate | None:
        """A candidate when `found` is better than all before it; one near a strategy that lost comes after
        all others. Better is whose step is shorter; where an order is enforced in part (by control edges, say), in the mean of its
        own order and the graph's: of plans equally fast in their own order those took longer on real devices that hang on it more.

        measured: seconds that its steps took, if they ever ran. A plan that starts from such a strategy always promises a little
        more, and mostly for want of knowledge (`DOUBT`).
        """
        problem = self.assembled.problem
        if found.splits:
            return self._consider_split(found)
        if self.ordered:
            found = replace(found, priority=as_enforced(problem, found.priority))
        try:
            simulation = simulate_placement(problem, found.placement, found.priority if self.ordered else self.order)
            anyhow = simulation
            if self.ordered and not self.whole_order:
                anyhow = simulate_placement(problem, found.placement, as_enforced(problem, self.order))
        except StepdError:
            return None  # a starting point that breaks a kernel limit, such as today's where the runtime fell back
        near = any(distance(problem, found.placement, other) < NEAR for other in self.lost)
        seconds = (simulation.step_seconds + anyhow.step_seconds) / 2
        if measured:
            seconds = measured / self.calibration.factor / (1.0 + max(self.calibration.error, DOUBT))
        rank = (int(simulation.overflow_bytes.sum()) + int(near), seconds)
        if self._best and rank >= self._best[0]:
            return None
        self._best[:] = [rank]
        candidate = _candidate(found, simulation, self.calibration.factor, near)
        return replace(candidate, seconds=measured) if measured and simulation.feasible else candidate

    def _consider_split(self, found: Strategy) -> Candidate | None:
        """As `consider`, of a strategy with splits."""
        problem = self.assembled.problem
        base = splittable(problem, live=True)
        priority = found.priority if self.ordered else self.order
        seconds, facts = simulate(base, split_problem(base, found.splits, split_costs(problem)), replace(found, priority=priority))
        near = {split.op for split in found.splits} in self.lost_splits
        rank = (int(not facts["feasible"]) + int(near), seconds)
        if self._best and rank >= self._best[0]:
            return None
        self._best[:] = [rank]
        return Candidate(
            placement=found.placement,
            priority=priority,
            seconds=seconds * self.calibration.factor if facts["feasible"] else float("inf"),
            simulated_seconds=seconds,
            peak_bytes=facts["peak_bytes"],
            busy_fraction=tuple(busy / max(seconds, 1e-12) for busy in facts["busy_seconds"]),
            lower_bound_seconds=0.0,
            algorithm=_algorithm(found),
            near_lost=near,
            splits=found.splits,
            enforced=self.whole_order or not np.array_equal(priority, self.order),
        )


def begin(situation: Situation, measured: Sequence[Measured], *, ordered: bool = False, whole_order: bool = False) -> Planning:
    """Assemble and calibrate. `ordered`: the runtime will enforce priorities; else they are not counted on. `whole_order`: it will
    let no op begin on a device before those that come before it there, if they can. Raises ProblemError.
    """
    assembled, calibration = calibrate(assemble(situation), measured)
    order = natural_priority(assembled.problem)
    lost = tuple(
        columns(assembled.problem, assembled.today, order, known)[0] for known in measured if known.lost and not known.splits
    )
    index = {name: k for k, name in enumerate(assembled.problem.op_names)}
    lost_splits = tuple({index.get(split[0], -1) for split in known.splits} for known in measured if known.lost and known.splits)
    won = [known for known in measured if known.id and not known.lost and not known.in_force and not known.splits]
    strategies = (
        _strategy(assembled.problem, *columns(assembled.problem, assembled.today, order, known), f"kept before: {known.id[:8]}")
        for known in won
    )
    kept = tuple(zip(strategies, (known.seconds for known in won), strict=True))
    today = next((known for known in measured if known.in_force and ordered), None)
    in_force = columns(assembled.problem, assembled.today, order, today)[1] if today else order
    return Planning(assembled, calibration, order, in_force, ordered, whole_order, kept, lost, lost_splits, [])


def run(planning: Planning, search: Search, tell: Callable[[Candidate], None]) -> None:
    """Today's placement, what was kept before (by an earlier job with this graph, say), every single device and data parallelism
    by splitting, then what `search` finds; `tell` hears of each better candidate at once.
    """
    problem = planning.assembled.problem

    def report(found: Strategy, measured: float = 0.0) -> None:
        candidate = planning.consider(found, measured)
        if candidate is not None:
            tell(candidate)

    today = _strategy(problem, planning.assembled.today, planning.order_in_force, "today")
    for start in (today, *single_devices(problem, planning.order)):
        report(start)
    for start, seconds in planning.kept:
        report(start, seconds)
    for replicated in replicate.candidates(problem, planning.order, live=True):
        report(replicated)
    search(problem, [today, *(start for start, _ in planning.kept)], report)


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
