"""Order-Place (Celeritas, section 5.2): the fused clusters in CPD-TOPO order, one device filled after the other."""

from __future__ import annotations

from stepd.core.placement.celeritas import fused, mapped_back
from stepd.core.placement.celeritas_order import cpd_topo
from stepd.core.placement.celeritas_place import order_place
from stepd.core.placement.fastt_dpos import GAPS, by_start
from stepd.core.placement.partial_schedule import Rules, limits_of
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Order-Place. Parameters: those of Celeritas. `memory_factor` says when a device is full."""
    coarse = fused(problem, options)
    prepared = prepare(coarse.problem)
    order = cpd_topo(prepared)
    rules = Rules(contention=options.link_aware, insertion=True, gaps=GAPS)
    state = order_place(prepared.tables, limits_of(prepared, options.memory_factor), rules, order)
    placement, priority = mapped_back(coarse, state.placement, by_start(state.start, order), options)
    return finish(
        problem,
        "order-place",
        options,
        placement,
        priority,
        clusters=coarse.problem.n_ops,
        memory_overflows=int(state.overflow[0]),
    )
