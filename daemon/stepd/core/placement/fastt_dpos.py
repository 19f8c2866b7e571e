"""FastT's DPOS: Device Placement and Operation Sequencing (FastT, section 5.1, Algorithm 1).

List scheduling by upward rank with the largest costs; ops of the critical path go to critical-path devices, the others where
they end first; the execution order is that of the start times. `link_aware=False` is DPOS as published: transfers never wait
for each other. Link-aware, the transfers are reserved on links, and variables go where their first reader goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepd.core.placement.deferral import deferrable, lazy_starts, nothing_deferred
from stepd.core.placement.list_scheduling import Plan, list_schedule
from stepd.core.placement.partial_schedule import Rules, limits_of
from stepd.core.placement.ranks import Costs, ascending, by_rank, critical_path, op_seconds, transfer_seconds, upward_ranks
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import Prepared, prepare
from stepd.core.problem import Float, Index, Problem
from stepd.core.strategy import Strategy

OpSeconds = Callable[[Prepared, Costs], Float]

GAPS = 1024  # idle gaps remembered per device and link


@dataclass(frozen=True)
class Settings:
    """How a list schedule is made. `costs`: those of the ranks; `path`: critical-path devices; `defer`: see `deferral`."""

    memory_factor: float = 1.0
    link_aware: bool = True
    costs: Costs = "max"
    insertion: bool = True
    defer: bool = True
    path: bool = True


@dataclass(frozen=True, eq=False)
class Sequence:
    """A list schedule. placement, priority: int32 [n]. seconds: the schedule's own FT(o_exit), not simulated; inf when given up."""

    placement: Index
    priority: Index
    seconds: float
    memory_overflows: int


def settings_of(options: PlanOptions, *, costs: Costs, path: bool) -> Settings:
    """The settings that the options ask for. Link-aware, variables are deferred unless `defer` says no."""
    return Settings(
        memory_factor=options.memory_factor,
        link_aware=options.link_aware,
        costs=options.parameter("costs", costs),
        insertion=options.parameter("insertion", True),
        defer=options.parameter("defer", options.link_aware),
        path=options.parameter("path", path),
    )


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """DPOS. Parameters: `costs` ("max" as published, or "mean"), `insertion`, `defer`, `path` (see Settings)."""
    return scheduled(problem, "fastt-dpos", options, settings_of(options, costs="max", path=True))


def scheduled(problem: Problem, name: str, options: PlanOptions, settings: Settings) -> Strategy:
    """The Strategy of one list schedule."""
    sequence = dpos(prepare(problem), settings)
    return finish(
        problem,
        name,
        options,
        sequence.placement,
        sequence.priority,
        own_seconds=sequence.seconds,
        memory_overflows=sequence.memory_overflows,
    )


def dpos(prepared: Prepared, settings: Settings, limit: float = np.inf, costs_of: OpSeconds = op_seconds) -> Sequence:
    """Algorithm 1 on the tables of a problem. `limit`: give up a schedule that must take longer. `costs_of`: `op_seconds`, or what
    gives the same sooner."""
    tables = prepared.tables
    rank = upward_ranks(tables, costs_of(prepared, settings.costs), transfer_seconds(prepared, settings.costs))
    order = by_rank(prepared, rank)
    if np.isfinite(limit):
        tail = upward_ranks(tables, costs_of(prepared, "min"), transfer_seconds(prepared, "min"))
    else:
        tail = np.zeros(len(order))
    plan = Plan(
        order=order,
        path=critical_path(tables, rank) if settings.path else np.empty(0, dtype=np.int32),
        deferred=deferrable(tables, costs_of(prepared, "max"), 1.0) if settings.defer else nothing_deferred(prepared),
        tail=tail,
        limit=float(limit),
    )
    rules = Rules(contention=settings.link_aware, insertion=settings.insertion, gaps=GAPS)
    state = list_schedule(tables, limits_of(prepared, settings.memory_factor), rules, plan)
    seconds = float(state.finish.max(initial=0.0))
    priority = by_start(lazy_starts(tables, order, plan.deferred, state.start), order) if np.isfinite(seconds) else order
    return Sequence(state.placement, priority, seconds, int(state.overflow[0]))


def by_start(start: Float, order: Index) -> Index:
    """The execution list A of Algorithm 1, line 23, as priorities: by start time; at one instant, in the order of the list."""
    priority = np.empty(len(order), dtype=np.int32)
    priority[order[ascending(start[order])]] = np.arange(len(order), dtype=np.int32)
    return priority
