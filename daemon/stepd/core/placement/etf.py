"""ETF (Hwang et al. 1989): Earliest Time First, without a memory limit. m-ETF is the same within memory."""

from __future__ import annotations

import numpy as np

from stepd.core.placement.deferral import deferrable, lazy_starts, nothing_deferred
from stepd.core.placement.earliest_first import Choice, earliest_first
from stepd.core.placement.fastt_dpos import GAPS, by_start
from stepd.core.placement.partial_schedule import Rules, limits_of
from stepd.core.placement.ranks import by_rank, op_seconds, transfer_seconds, upward_ranks
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Mask, Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """ETF. Parameter: `defer` (variables go with their first reader; only link-aware)."""
    everywhere = np.ones((problem.n_ops, problem.n_devices), dtype=np.bool_)
    return etf(problem, options, "etf", memory_factor=np.inf, permitted=everywhere)


def etf(problem: Problem, options: PlanOptions, name: str, *, memory_factor: float, permitted: Mask) -> Strategy:
    """Earliest Time First under the name of one of its variants. permitted: bool [n, d]; ties: the larger upward rank."""
    prepared = prepare(problem)
    tables = prepared.tables
    rank = upward_ranks(tables, op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean"))
    order = by_rank(prepared, rank)
    defer = options.parameter("defer", options.link_aware)
    choice = Choice(order, deferrable(tables, op_seconds(prepared, "max"), 1.0) if defer else nothing_deferred(prepared), permitted)
    rules = Rules(contention=options.link_aware, insertion=False, gaps=GAPS)
    state = earliest_first(tables, limits_of(prepared, memory_factor), rules, choice)
    return finish(
        problem,
        name,
        options,
        state.placement,
        by_start(lazy_starts(tables, order, choice.deferred, state.start), order),
        own_seconds=float(state.finish.max(initial=0.0)),
        memory_overflows=int(state.overflow[0]),
    )
