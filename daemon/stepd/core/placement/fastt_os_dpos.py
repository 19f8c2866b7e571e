"""FastT's OS-DPOS: DPOS with ops of the critical path split (FastT, section 5.2, Algorithm 2).

The ops of the placed critical path are tried by decreasing time: on every axis and with every number of parts that the problem
offers, the split problem is scheduled anew by DPOS; the best split is kept when it makes the step shorter. As published, a
schedule's own FT(o_exit) decides (`accept="schedule"`) and the first op that does not help ends the search (`patience=1`). By
default a split must also shorten the simulated step, and `patience` ops in a row may fail.

A schedule is given up as soon as some op ends too late to beat the best one so far, and so is its simulation; the costs of ops
that no split touches are taken from the whole problem; several ways to split are tried at the same time where there are
threads, those of the next ops too as long as nothing better is found. None of that changes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from stepd.core.errors import StrategyError
from stepd.core.placement.fastt_dpos import Settings, dpos, settings_of
from stepd.core.placement.orders import placed_costs
from stepd.core.placement.ranks import Costs, critical_path, op_seconds, op_seconds_of, upward_ranks
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.split_answer import read_off, simulate_parts
from stepd.core.placement.split_problem import SplitCosts, Splittable, split_problem, splittable
from stepd.core.prepared import Prepared, prepare
from stepd.core.problem import Float, Int, Problem, SplitChoice
from stepd.core.reach import connected_ops
from stepd.core.strategy import Split, Strategy

PATIENCE = 10
AT_ONCE = 64
"""Ways to split that are handed out together; each begins with what the ways before it have found by then."""


@dataclass(frozen=True, eq=False)
class _Answer:
    """A strategy, and FT(o_exit) of the schedule that it was read off."""

    strategy: Strategy
    own_seconds: float
    memory_overflows: int


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """OS-DPOS. Parameters: those of DPOS; `accept` ("simulated" or "schedule"), `patience`, `overhead_seconds` of a part and
    `copy_bytes_per_second` of cutting and joining. A unit of `max_work` is one reschedule."""
    search = _Search(problem, options)
    best = search.answer((), None)
    if best is None:
        raise StrategyError(f"problem {problem.name!r}: no placement was found whose ops paths of links connect")
    return search.labelled(search.run(best))


class _Search:
    """The problem, the options, and how much of the work is done."""

    def __init__(self, problem: Problem, options: PlanOptions) -> None:
        self.base: Splittable = splittable(problem)
        self.choices: dict[int, list[SplitChoice]] = {}
        for choice in self.base.choices.values():
            self.choices.setdefault(choice.op, []).append(choice)
        self.options = options
        self.settings: Settings = settings_of(options, costs="max", path=True)
        self.simulated = options.parameter("accept", "simulated") == "simulated"
        default = SplitCosts()
        self.costs = SplitCosts(
            options.parameter("overhead_seconds", default.overhead_seconds),
            options.parameter("copy_bytes_per_second", default.copy_bytes_per_second),
        )
        self.started = options.clock()
        self.reschedules = 1  # the first one, without a split
        self.whole_seconds: dict[Costs, Float] = {}
        self.bar: _Answer | None = None  # what a way that begins now has to beat
        self.only: int | None = None  # the op whose ways are still worth a try, when a better split of it has been found

    def ended(self) -> bool:
        """Whether the budget or the work is used up."""
        late = self.options.clock() - self.started >= self.options.budget_seconds
        return late or 0 < self.options.max_work <= self.reschedules

    def candidates(self, strategy: Strategy) -> list[int]:
        """Algorithm 2, lines 4-5: ops of the critical path of this placement that can be split, longest first."""
        problem = self.base.problem
        tables = prepare(problem).tables
        seconds, transfer = placed_costs(problem, strategy.placement)
        path = critical_path(tables, upward_ranks(tables, seconds, transfer))
        return sorted((int(op) for op in path if op in self.choices), key=lambda op: -seconds[op])

    def run(self, best: _Answer) -> _Answer:
        """Algorithm 2, lines 6-16, from DPOS without a split."""
        patience, failed = int(self.options.parameter("patience", PATIENCE)), 0
        ways = [split for op in self.candidates(best.strategy) for split in self.ways(op)]
        found: _Answer | None = None  # the best of the ways to split the op that is being tried
        done = 0
        while done < len(ways) and failed < patience and not self.ended():
            batch = ways[done : done + self.at_once()]
            self.bar, self.only = found or best, batch[0].op if found else None
            trying = partial(self.try_way, best.strategy.splits)
            for split, answer in zip(batch, self.options.run_all(trying, batch), strict=False):
                self.reschedules += 1
                done += 1
                if answer is not None and self.beats(answer, found or best):
                    found = answer
                    self.bar, self.only = found, split.op  # for those that have not begun yet
                if done < len(ways) and ways[done].op == split.op and not self.ended():
                    continue
                failed = 0 if found else failed + 1
                if found is not None:
                    best, found = found, None
                    if self.options.report is not None:
                        self.options.report(self.labelled(best))
                    break  # what was tried beyond this op was tried without its split
                if failed >= patience or self.ended():
                    break
        return best

    def at_once(self) -> int:
        """How many ways to try next without a look at the rest."""
        return min(AT_ONCE, self.options.max_work - self.reschedules) if self.options.max_work else AT_ONCE

    def try_way(self, splits: tuple[Split, ...], split: Split) -> _Answer | None:
        """`answer` for one split more; None too where it was begun after a better split of an earlier op had been found."""
        if self.only is not None and split.op != self.only:
            return None
        return self.answer((*splits, split), self.bar)

    def ways(self, op: int) -> list[Split]:
        """The splits of `op` that the problem offers, into at most as many parts as there are devices."""
        devices = self.base.problem.n_devices
        choices = self.choices.get(op, ())
        return [Split(op, choice.axis, parts) for choice in choices for parts in range(2, min(choice.max_parts, devices) + 1)]

    def beats(self, answer: _Answer, other: _Answer) -> bool:
        """Whether `answer` is accepted over `other`."""
        if answer.own_seconds >= other.own_seconds:
            return False
        if not self.simulated:
            return True
        mine, theirs = answer.strategy, other.strategy
        if mine.planner["feasible"] != theirs.planner["feasible"]:
            return bool(mine.planner["feasible"])
        return mine.predicted_step_seconds < theirs.predicted_step_seconds

    def answer(self, splits: tuple[Split, ...], bar: _Answer | None) -> _Answer | None:
        """DPOS on the problem with these splits; None when it cannot beat `bar`, or cannot run."""
        bare = tuple(replace(split, devices=()) for split in splits)
        split = split_problem(self.base, bare, self.costs)
        changed = np.array([*(split.op for split in splits), *range(split.n_original, len(split.origin))], dtype=np.int64)
        sequence = dpos(
            split.prepared,
            self.settings,
            np.inf if bar is None else bar.own_seconds,
            lambda prepared, costs: self.op_seconds(prepared, costs, changed),
        )
        if not sequence.seconds < (np.inf if bar is None else bar.own_seconds):
            return None
        placement, priority, placed = read_off(split, sequence.placement, sequence.priority)
        if not splits:
            placement = connected_ops(self.base.prepared, placement)
        strategy = Strategy(self.base.problem.name, placement, priority, np.inf, placed)
        limit = bar.strategy.predicted_step_seconds if self.simulated and bar and bar.strategy.planner["feasible"] else np.inf
        trace = simulate_parts(self.base, split, strategy, limit)
        if not trace.makespan < np.inf:
            return None
        memory = split.prepared.tables.memory
        facts = {
            "feasible": bool(np.all(trace.peak <= memory)),
            "peak_bytes": [int(peak) for peak in trace.peak],
        }
        strategy = replace(strategy, predicted_step_seconds=float(trace.makespan), planner=facts)
        return _Answer(strategy, sequence.seconds, sequence.memory_overflows)

    def op_seconds(self, prepared: Prepared, costs: Costs, changed: Int) -> Float:
        """As `ranks.op_seconds`, where only the ops `changed` differ from those of the whole problem."""
        whole = self.whole_seconds.get(costs)
        if whole is None:
            whole = self.whole_seconds[costs] = op_seconds(self.base.prepared, costs)
        seconds = np.concatenate([whole, np.zeros(len(prepared.tables.temp) - len(whole))])
        seconds[changed] = op_seconds_of(prepared.tables.seconds[changed], costs)
        return seconds

    def labelled(self, answer: _Answer) -> Strategy:
        """The strategy, with what `planner` says about it."""
        options = self.options
        facts = {
            "algorithm": "fastt-os-dpos",
            "seed": options.seed,
            **({"parameters": dict(options.parameters)} if options.parameters else {}),
            **answer.strategy.planner,
            "own_seconds": answer.own_seconds,
            "memory_overflows": answer.memory_overflows,
            "reschedules": self.reschedules,
        }
        return replace(answer.strategy, planner=facts)
