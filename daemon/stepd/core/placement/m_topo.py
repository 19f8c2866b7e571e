"""m-TOPO (Baechi, as told in Celeritas section 4.2.2): ops in breadth-first topological order, one device filled after the other.

Baechi's bound on a device is an equal share of the memory of all ops plus the largest op, within the device's own memory.
"""

from __future__ import annotations

import numpy as np

from stepd.core.placement.celeritas_fusion import memory_need
from stepd.core.placement.celeritas_place import order_place
from stepd.core.placement.fastt_dpos import GAPS
from stepd.core.placement.orders import order_for
from stepd.core.placement.partial_schedule import Rules, limits_of
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """m-TOPO. Parameter: `order` of execution: "ready" (the order of placing) or "rank"."""
    prepared = prepare(problem)
    tables = prepared.tables
    need = memory_need(prepared)
    memory = tables.memory.astype(np.float64)
    share = need.sum() * memory / max(memory.sum(), 1.0) + need.max(initial=0.0)
    limits = limits_of(prepared, options.memory_factor)
    limits = limits._replace(capacity=np.minimum(limits.capacity, share))
    rules = Rules(contention=options.link_aware, insertion=False, gaps=GAPS)
    state = order_place(tables, limits, rules, tables.topological)
    priority = order_for(problem, state.placement, options.parameter("order", "ready"))
    return finish(problem, "m-topo", options, state.placement, priority, memory_overflows=int(state.overflow[0]))
