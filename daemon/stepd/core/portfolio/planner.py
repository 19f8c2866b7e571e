"""The portfolio: candidates of every algorithm and of the graph's structure, then local search on the simulator.

Anytime: `search` yields every better strategy. Work is cut into rounds of a fixed number of moves that depend on the problem
and the seed only; the budget decides how many rounds run, never what a round does. The single devices come first, so that no
answer is worse than the best of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np

from stepd.core.bounds import Bound, best_bound
from stepd.core.coarsen import expand
from stepd.core.errors import PlannerError, ProblemError, StrategyError
from stepd.core.placement import registry
from stepd.core.placement.coarse_groups import merged
from stepd.core.placement.registry import PlanOptions, stopped_clock
from stepd.core.placement.rng import new_rng
from stepd.core.portfolio import candidates
from stepd.core.portfolio.labels import Labelling, labellings
from stepd.core.portfolio.pool import Candidate, Entry, Pool
from stepd.core.portfolio.search_kernel import Units, anneal
from stepd.core.portfolio.units import make_units
from stepd.core.prepared import prepare
from stepd.core.problem import Device, Index, Link, Problem
from stepd.core.simulator import Simulation, simulate_placement
from stepd.core.strategy import Strategy

CHAINS = 4
"""Annealing chains in a round, whatever the number of workers, so that the answer does not depend on it."""
MOVES = 1_500_000
"""Ops and edges simulated by one chain in one round: about half a second."""
ROUNDS_WITHOUT_CLOCK = 6
BATCH = 4
"""Algorithms that run at the same time."""
SLOW_ALGORITHMS_UP_TO = 1500
COARSE_FROM = 4000
COARSE_SIZE = 600


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """The best strategy that the budget allows. Parameter: `algorithms`, names of those that give candidates (default: all)."""
    if options.budget_seconds <= 0:
        raise PlannerError(f"the budget is {options.budget_seconds} s: give the portfolio some time")
    best: Strategy | None = None
    for best in search(problem, options):
        if options.report is not None:
            options.report(best)
    if best is None:
        raise ProblemError(f"problem {problem.name!r}: no placement connects all its ops")
    return best


def search(problem: Problem, options: PlanOptions, starts: Sequence[Strategy] = ()) -> Iterator[Strategy]:
    """Better and better strategies until the budget ends. `starts`: strategies to begin with, such as the one in force."""
    warm_up()
    return _Search(problem, options).run(starts)


@lru_cache(maxsize=1)
def warm_up() -> None:
    """Compile the search's own kernels, or load them from numba's cache, on a problem of two ops.

    Once per machine this takes as long as a plan; a budget that begins afterwards is spent on planning.
    """
    tiny = Problem(
        name="warm-up",
        devices=(Device("0", "CPU", 1), Device("1", "CPU", 1)),
        links=(Link(0, 1, 1.0, 0.0), Link(1, 0, 1.0, 0.0)),
        op_names=("layer_0/a", "layer_1/b", "layer_1/c"),
        op_types=("A", "B", "B"),
        seconds=np.ones((3, 2)),
        resident_bytes=np.array([1, 0, 0]),
        temp_bytes=np.zeros(3, dtype=np.int64),
        colocation=np.full(3, -1, dtype=np.int32),
        edge_src=np.zeros(2, dtype=np.int32),
        edge_dst=np.array([1, 2], dtype=np.int32),
        edge_output=np.zeros(2, dtype=np.int32),
        edge_bytes=np.ones(2, dtype=np.int64),
    )
    for _ in _Search(tiny, PlanOptions(max_work=1, parameters={"algorithms": ()})).run(()):
        pass


class _Search:
    """One run of the portfolio."""

    def __init__(self, problem: Problem, options: PlanOptions) -> None:
        self.problem = problem
        self.options = options
        self.began = options.clock()
        self.prepared = prepare(problem)
        self.pool = Pool(problem, options.run_all)
        self.bound: Bound = best_bound(problem)
        self.failed: dict[str, str] = {}
        self.rounds = 0
        self.yielded = float(np.inf)

    def used(self) -> float:
        """Share of the budget that is gone."""
        return (self.options.clock() - self.began) / self.options.budget_seconds

    def run(self, starts: Sequence[Strategy]) -> Iterator[Strategy]:
        pool = self.pool
        pool.try_all(pool.from_groups(*item) for item in candidates.single_devices(self.prepared))
        pool.try_all(
            Candidate(str(start.planner.get("algorithm", "start")), start.placement.copy(), start.priority.copy())
            for start in starts
        )
        pool.try_all(pool.from_groups(*item) for item in candidates.user_placement(self.problem, self.prepared))
        yield from self._better()
        labels = labellings(self.problem)
        yield from self._structure(labels)
        yield from self._algorithms()
        yield from self._coarse()
        yield from self._local_search(make_units(self.prepared, labels))

    def _structure(self, labels: list[Labelling]) -> Iterator[Strategy]:
        """What an expert would try, in turn over the labellings, so that each gets its best ideas tried in time."""
        ideas = [list(candidates.expert_placements(self.prepared, labelling)) for labelling in labels]
        for turn in zip_longest(*ideas):
            if self.used() > 0.2:
                return
            self.pool.try_all(self.pool.from_groups(*item) for item in turn if item is not None)
            yield from self._better()

    def _algorithms(self) -> Iterator[Strategy]:
        """Every fast algorithm's sweep; then blind to links, and under tight memory with less of it to fill; then slow ones."""
        plain = replace(self.options, report=None, run_all=map, parameters={})
        variants = [plain, replace(plain, link_aware=False)]
        if self.pool.track:
            variants += [replace(plain, memory_factor=factor) for factor in (0.85, 0.7)]
        runs = [
            (name, options)
            for variant in variants
            for name in self._names()
            if self._fast(registry.find(name))
            for options in registry.swept(name, variant)
        ]
        if self.problem.n_ops <= SLOW_ALGORITHMS_UP_TO:
            short = replace(plain, budget_seconds=self.options.budget_seconds * 0.05)
            slow = [name for name in self._names() if registry.find(name).effort == "slow"]
            runs += [(name, options) for name in slow for options in registry.swept(name, short)]
        for k in range(0, len(runs), BATCH):
            if self.used() > 0.45:
                return
            found = self.options.run_all(self._algorithm, runs[k : k + BATCH])
            self.pool.try_all(candidate for candidate in found if candidate is not None)
            yield from self._better()

    def _names(self) -> tuple[str, ...]:
        """The algorithms to take candidates from: the parameter `algorithms`, else all."""
        return tuple(self.options.parameter("algorithms", registry.names()))

    def _fast(self, algorithm: registry.Algorithm) -> bool:
        return algorithm.effort == "fast" and algorithm.name != "single" and self.problem.n_ops <= algorithm.fast_up_to

    def _algorithm(self, run: tuple[str, PlanOptions]) -> Candidate | None:
        name, options = run
        try:
            found = registry.plan(name, self.problem, options)
        except (PlannerError, StrategyError):
            return None  # an extra that is not installed, or no answer within the memory: one candidate less
        except Exception as error:
            # One algorithm's fault costs its candidate, not the plan; the answer says so.
            self.failed[name] = f"{type(error).__name__}: {error}"[:200]
            return None
        own = ", ".join(f"{key}={value}" for key, value in options.parameters.items())
        return Candidate(f"{name}({own})" if own else name, found.placement.copy(), found.priority.copy())

    def _coarse(self) -> Iterator[Strategy]:
        """On large graphs: the portfolio on a merged graph, whose steps are simulated in a hundredth of the time."""
        if self.problem.n_ops < COARSE_FROM or self.used() > 0.5:
            return
        coarse = merged(self.problem, COARSE_SIZE)
        if coarse.problem.n_ops > self.problem.n_ops // 3:
            return
        share = replace(self.options, budget_seconds=self.options.budget_seconds * 0.2, max_work=self.options.max_work)
        for found in search(coarse.problem, share):
            placement, priority = expand(coarse, found.placement, found.priority)
            self.pool.try_all([Candidate(f"coarse {found.planner['origin']}", placement, priority)])
            yield from self._better()

    def _local_search(self, units: Units) -> Iterator[Strategy]:
        tables = self.prepared.tables
        work = len(tables.reader) + self.problem.n_ops
        steps = int(min(5_000, max(12, MOVES // work)))
        most = self.options.max_work or (ROUNDS_WITHOUT_CLOCK if self.options.clock is stopped_clock else 1 << 30)
        while self.pool.entries and self.rounds < most and self.used() < 1.0 and not self._optimal():
            chosen = self._parents()
            tasks = [(entry, units, steps, k) for k, entry in enumerate(chosen)]
            for entry in self.options.run_all(self._chain, tasks):
                self.pool.add(entry)
            self.rounds += 1
            yield from self._better()

    def _optimal(self) -> bool:
        best = self.pool.best.point
        return best.overflow == 0.0 and best.seconds <= self.bound.seconds * (1 + 1e-9)

    def _parents(self) -> list[Entry]:
        """Where the chains of a round start: many different points at first, in the end the best one only."""
        width = max(1, min(len(self.pool.entries), 8 - self.rounds // 2))
        return [self.pool.entries[(self.rounds * CHAINS + k) % width] for k in range(CHAINS)]

    def _chain(self, task: tuple[Entry, Units, int, int]) -> Entry:
        entry, units, steps, chain = task
        heat = min(1.0, steps / 500) * (0.03, 0.01, 0.003, 0.001)[(chain + self.rounds) % 4]
        rng = new_rng(self.options.seed * 1_000_003 + self.rounds * CHAINS + chain + 1)
        point = anneal(
            self.prepared.tables,
            units,
            self.prepared.group_seconds,
            entry.point,
            entry.weight,
            self.pool.tail,
            self.pool.penalty,
            self.pool.track,
            steps,
            heat,
            rng,
        )
        return Entry(point, entry.weight, entry.origin)

    def _better(self) -> Iterator[Strategy]:
        if self.pool.cost < self.yielded:
            best = self._strategy(self.pool.best)
            # Another order of ops that start at one instant may have been better: the search goes on from there.
            self.pool.try_all([Candidate(best.planner["origin"], best.placement, best.priority)])
            self.yielded = self.pool.cost
            yield best

    def _strategy(self, entry: Entry) -> Strategy:
        placement, priority, simulation = in_start_order(self.problem, entry.point.placement.copy(), entry.point.priority.copy())
        facts: dict[str, Any] = {
            "algorithm": "portfolio",
            "origin": entry.origin,
            "seed": self.options.seed,
            "feasible": simulation.feasible,
            "peak_bytes": [int(peak) for peak in simulation.device_peak_bytes],
            "seconds": self.options.clock() - self.began,
            "rounds": self.rounds,
            **({"failed": dict(self.failed)} if self.failed else {}),
        }
        facts["lower_bound_seconds"] = self.bound.seconds
        facts["lower_bound_kind"] = self.bound.kind
        facts["gap"] = self.bound.gap(simulation.step_seconds)
        return Strategy(
            problem=self.problem.name,
            placement=placement,
            priority=priority,
            predicted_step_seconds=simulation.step_seconds,
            planner=facts,
        )


def in_start_order(problem: Problem, placement: Index, priority: Index) -> tuple[Index, Index, Simulation]:
    """The same strategy with priorities renumbered in the order in which ops start, when that changes no time.

    Such an order is also a topological one: what enforces it can chain the ops of a device.
    """
    simulation = simulate_placement(problem, placement, priority)
    order = np.lexsort((priority, simulation.finish, simulation.start))
    renumbered = np.empty_like(priority)
    renumbered[order] = np.arange(len(order), dtype=np.int32)
    again = simulate_placement(problem, placement, renumbered)
    if again.step_seconds <= simulation.step_seconds and again.feasible == simulation.feasible:
        return placement, renumbered, again
    return placement, priority, simulation
