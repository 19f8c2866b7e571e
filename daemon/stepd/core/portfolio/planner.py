"""The portfolio: candidates of every algorithm and of the graph's structure, and local search on the simulator.

Anytime: `search` yields every better strategy. Work is cut into rounds of a fixed number of moves that depend on the problem
and the seed only; the budget decides how many rounds run, never what a round does. The single devices come first, so that no
answer is worse than the best of them. Compiling counts: where kernels are not in the cache, the first answers are simulated in
plain Python, and what cannot be compiled in time is left out (`Compiling`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import takewhile

import numpy as np

from stepd.core.bounds import Bound, best_bound, quick_bound
from stepd.core.compiled import at_hand, compilations
from stepd.core.errors import PlannerError, ProblemError, StrategyError
from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions, stopped_clock
from stepd.core.portfolio import candidates, coarse_start
from stepd.core.portfolio.answers import Answers, Ask
from stepd.core.portfolio.compiling import Compiling, Kernels, tiny_problem
from stepd.core.portfolio.ends import bound_effort, ends_of, first_round, looking
from stepd.core.portfolio.fewer_devices import asked, parts
from stepd.core.portfolio.local_search import LocalSearch
from stepd.core.portfolio.pool import Candidate, Entry, Pool
from stepd.core.portfolio.runs import Run, best_sweeps, early_sweeps, first_look, full_sweep
from stepd.core.portfolio.start_order import in_start_order, natural_priority
from stepd.core.portfolio.structure import Structure
from stepd.core.portfolio.units import make_units
from stepd.core.prepared import prepare
from stepd.core.problem import Index, Problem
from stepd.core.simulation_kernel import run_step
from stepd.core.simulator import Simulation, simulate_placement, simulate_slowly
from stepd.core.strategy import Strategy

ROUNDS_WITHOUT_CLOCK = 6
BATCH = 4
"""Algorithms that run at the same time."""


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
    """Better and better strategies until the budget ends; the last one again if more is known of its bound, or of faults, then.

    starts: strategies to begin with, such as the one in force.
    """
    running = _Search(problem, options)
    best: Strategy | None = None
    for best in running.run(starts):
        yield best
    if best is not None:
        known = {**best.planner, **running.answers.facts(running.bound, best.predicted_step_seconds)}
        if known != best.planner:
            yield replace(best, planner=known)


@lru_cache(maxsize=1)
def warm_up() -> None:
    """Compile the search's own kernels, or load them from numba's cache, on a problem of three ops.

    Once per machine this takes as long as a plan; a budget that begins afterwards is spent on planning.
    """
    tiny = tiny_problem()
    tiny_search = _Search(tiny, PlanOptions(max_work=1, parameters={"algorithms": ()}))
    for _ in tiny_search.run(()):
        pass
    tiny_search.local_search(tiny_search.structure).round(0.0)


class _Search:
    """One run of the portfolio."""

    def __init__(self, problem: Problem, options: PlanOptions) -> None:
        self.problem = problem
        self.options = options
        self.began = options.clock()
        self.prepared = prepare(problem)
        self.bound: Bound = quick_bound(problem)
        self.structure = Structure(problem)
        self.ideas = self.structure.ideas()  # that were not tried yet
        self.answers = Answers(problem)  # what has its ops split stays there; the pool and the search know whole ops only
        self.ends = ends_of(options.budget_seconds, problem.n_ops)
        self.rounds = 0
        self.round_share = first_round(options.budget_seconds, problem.n_ops)  # of the budget; later what the last one took
        self.yielded = float(np.inf)
        self.compiling = Compiling(options.budget_seconds)
        self.most = options.max_work or (ROUNDS_WITHOUT_CLOCK if options.clock is stopped_clock else 1 << 30)
        self.first: list[Candidate] = []
        self.left: list[Ask] = []  # what `_algorithms` had no time for

    def used(self) -> float:
        """Share of the budget that is gone."""
        return (self.options.clock() - self.began) / self.options.budget_seconds

    def run(self, starts: Sequence[Strategy]) -> Iterator[Strategy]:
        yield from self._at_once(starts)
        ends = self.ends
        if self.compiling.unit > 0.0 and self.compiling.affords(Kernels.BOUND, self.used()):
            self.bound = best_bound(self.problem, bound_effort(self.options.budget_seconds))
        if not self.compiling.affords(Kernels.CANDIDATES, self.used()):
            return
        order, unordered = self.options.order, self.options.unordered
        self.pool = pool = Pool(self.problem, self.options.run_all, order, unordered, sparing=ends.sparing)
        if ends.sparing:
            for candidate in self.first:
                pool.add(pool.in_first_order(candidate))
        else:
            pool.try_all(self.first)
        pool.try_all(pool.from_groups(*item) for item in candidates.user_placement(self.problem, self.prepared))
        yield from self._better()
        names = tuple(self.options.parameter("algorithms", registry.names()))
        plain = replace(self.options, report=None, run_all=map, parameters={})
        first = first_look(names, plain, self.problem.n_ops)
        self.left = self.answers.asked(first)
        leading = (yield from self._leading(first, plain)) if ends.hurried else []
        yield from self._structure(ends.structure)
        yield from self._clusters(ends.clusters)
        some = parts(self.problem, self.answers.failed)
        yield from self._algorithms([*self.left, *asked(some, first[:BATCH])], until=ends.first)
        best = [run for run in best_sweeps(names, plain, self.answers.shortest) if run not in leading]
        sweeps = self.answers.asked(best)
        asks = [*sweeps, *self.left] if ends.hurried else [*self.left, *sweeps]
        yield from self._algorithms(asks, until=ends.sweeps)
        left = self.left
        yield from self._algorithms(asked(some, first[BATCH:]), until=ends.sweeps)
        left += self.left
        if ends.sparing and self.compiling.unit == 0.0:
            self.bound = best_bound(self.problem, bound_effort(self.options.budget_seconds))
        if self.pool.entries and not self._going_on():
            yield from self._structure(1.0)
            return
        local = self.local_search(self.structure)
        yield from self._round(local)
        for part in some:
            left += part.asked(best_sweeps(names, plain, part.answers.shortest, self.yielded))
        sweep = self.answers.asked(full_sweep(names, plain, self.problem.n_ops, pool.track, done=[*first, *leading, *best]))
        yield from self._algorithms([*left, *sweep], until=0.6, local=local)
        while self._going_on():
            yield from self._round(local)

    def _leading(self, first: list[Run], plain: PlanOptions) -> Generator[Strategy, None, list[Run]]:
        """The first look in a hurry: numbered names, then the first algorithms, whose sweeps, which it returns, come before the
        others."""
        for ideas in takewhile(lambda _: self.used() <= self.ends.named, self.structure.first_ideas()):
            self.pool.try_all(self.pool.from_groups(*idea) for idea in ideas)
        yield from self._better()
        before = self.yielded
        yield from self._algorithms(self.left[:1], until=self.ends.first)
        left = self.left
        ahead = early_sweeps(first[:1], plain, self.answers.shortest) if self.yielded < before else []
        yield from self._algorithms(self.answers.asked([*ahead, *first[1:BATCH]]), until=self.ends.first)
        left = [*left, *self.left]
        leading = [run for run in early_sweeps(first[:BATCH], plain, self.answers.shortest) if run not in ahead]
        yield from self._algorithms(self.answers.asked([*leading, *first[BATCH:]]), until=self.ends.first)
        self.left = [*left, *self.left]
        return [*ahead, *leading]

    def _at_once(self, starts: Sequence[Strategy]) -> Iterator[Strategy]:
        """The best of the single devices, in the order of readiness, and of `starts`: the least that there is to compile."""
        natural = natural_priority(self.problem)
        before = compilations(run_step)
        began = self.options.clock()
        cold = not at_hand(run_step)
        # What the user's code names would come later; where kernels are to be compiled there may be no time for that.
        self.first = candidates.to_begin_with(self.problem, self.prepared, natural, starts, named=cold)
        judge = simulate_slowly if cold else simulate_placement
        best: tuple[bool, float] | None = None
        for tried, candidate in enumerate(self.first):
            if cold and best is not None and self.used() * (tried + 1) / tried > 0.5:
                break
            priority = natural if self.options.order is not None or candidate.priority is None else candidate.priority
            try:
                step = judge(self.problem, candidate.placement, priority)
            except StrategyError:
                continue  # what cannot run on this device has no way to it
            if best is None or (not step.feasible, step.step_seconds) < best:
                best, answer = (not step.feasible, step.step_seconds), (candidate.origin, candidate.placement, priority, step)
        if compilations(run_step) > before:
            self.compiling.unit = self.options.clock() - began
        elif not cold and not self.ends.sparing:
            self.bound = best_bound(self.problem, bound_effort(self.options.budget_seconds))
        if best is not None:
            if answer[-1].feasible:
                self.yielded = answer[-1].step_seconds
            yield self._labelled(*answer)
        if cold:
            self.compiling.compile_simulator(self.problem, self.first[0].placement, natural, self.used(), self.options.clock)

    def _structure(self, until: float) -> Iterator[Strategy]:
        """What an expert would try."""
        if self.used() > until or not self._can_look_at_structure() or (self.pool.entries and self._optimal()):
            return
        for ideas in self.ideas:
            self.pool.try_all(self.pool.from_groups(*idea) for idea in ideas)
            yield from self._better()
            if self.used() > until:
                return

    def _can_look_at_structure(self) -> bool:
        """Whether it has been looked at, or there is time for that."""
        return self.structure.is_known or self.used() + looking(self.options.budget_seconds, self.problem.n_ops) <= 1.0

    def _clusters(self, until: float) -> Iterator[Strategy]:
        """A few large clusters, annealed."""
        if self.used() > until or not (self._can_look_at_structure() and self.compiling.affords(Kernels.SEARCH, self.used())):
            return
        chains = list(coarse_start.starts(self.pool, [*self.structure.roles, *self.structure.labels], self.options.budget_seconds))
        for k in range(0, len(chains), BATCH):
            if self.used() > until:
                return
            anneal = partial(coarse_start.anneal_clusters, self.pool, seed=self.options.seed)
            for entry in self.options.run_all(anneal, chains[k : k + BATCH]):
                self.pool.add(entry)
            yield from self._better()

    def _algorithms(self, runs: list[Ask], until: float, local: LocalSearch | None = None) -> Iterator[Strategy]:
        """Candidates of `runs` until that share of the budget is gone; with `local`, as much search in between as they take."""
        at_once = 1 if self.compiling.unit > 0.0 else BATCH
        if self.ends.hurried and self.options.clock is not stopped_clock:
            at_once = min(at_once, self.options.workers)  # what is no faster side by side need not wait for the others
        spent = searched = 0.0
        for k in range(0, len(runs), at_once):
            self.left = runs[k:]
            if self.used() > until:
                return
            if not self.compiling.affords(Kernels.ALGORITHM, self.used()):
                break
            began = self.used()
            found = self.options.run_all(lambda ask: ask(), runs[k : k + at_once])
            self.pool.try_all(candidate for candidate in found if candidate is not None)
            yield from self._better()
            for strategy in self.answers.better_in_parts(self.yielded, self.options.seed):
                self.yielded = strategy.predicted_step_seconds
                yield strategy
            spent += self.used() - began
            while local is not None and searched < spent and self._going_on():
                began = self.used()
                yield from self._round(local)
                searched += self.used() - began
        else:
            self.left = []

    def _going_on(self) -> bool:
        """Whether there is something to search from, and work or budget left to find better: for a round like the last one."""
        in_time = self.used() + self.round_share < 1.0
        return bool(self.pool.entries) and self.rounds < self.most and in_time and not self._optimal()

    def _round(self, local: LocalSearch) -> Iterator[Strategy]:
        """One round of the local search, unless there is none to go."""
        if not self._going_on():
            return
        if local.rounds == 0 and not self.compiling.affords(Kernels.SEARCH, self.used()):
            self.most = 0  # no time to compile it
            return
        began = self.used()
        local.round(max(began, self.rounds / self.most))
        self.rounds, self.round_share = local.rounds, self.used() - began
        yield from self._better()

    def _optimal(self) -> bool:
        best = self.pool.best.point
        return best.overflow == 0.0 and best.seconds <= self.bound.seconds * (1 + 1e-9)

    def local_search(self, structure: Structure) -> LocalSearch:
        """The local search on what has been found."""
        units = make_units(self.prepared, structure.labels, structure.finer)
        return LocalSearch(self.pool, units, self.options.seed, self.options.run_all, free_order=self.options.order is None)

    def _better(self) -> Iterator[Strategy]:
        if self.pool.cost < self.yielded:
            best = self._strategy(self.pool.best)
            # Another order of ops that start at one instant may have been better: the search goes on from there.
            self.pool.add(self.pool.in_first_order(Candidate(best.planner["origin"], best.placement, best.priority)))
            self.yielded = self.pool.cost
            yield best

    def _strategy(self, entry: Entry) -> Strategy:
        placement, priority = entry.point.placement.copy(), entry.point.priority.copy()
        if (order := self.options.order) is not None:
            return self._labelled(entry.origin, placement, order, simulate_placement(self.problem, placement, order))
        return self._labelled(entry.origin, *in_start_order(self.problem, placement, priority))

    def _labelled(self, origin: str, placement: Index, priority: Index, simulation: Simulation) -> Strategy:
        effort = {"seed": self.options.seed, "seconds": self.options.clock() - self.began, "rounds": self.rounds}
        return self.answers.labelled(origin, placement, priority, simulation, self.bound, effort)
