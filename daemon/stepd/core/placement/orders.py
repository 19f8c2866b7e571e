"""Execution orders for a placement that an algorithm found without one: by upward rank, or as ops become ready."""

from __future__ import annotations

import numpy as np

from stepd.core.errors import PlannerError
from stepd.core.placement.ranks import by_rank, op_seconds, transfer_seconds, upward_ranks
from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Float, Index, Problem

ORDERS = ("rank", "ready", "placed-rank")


def order_for(problem: Problem, placement: Index, name: str) -> Index:
    """Priorities int32 [n]. "rank": upward ranks with mean costs; "placed-rank": with the costs of this placement; "ready":
    producers before consumers, level by level, what a runtime without order enforcement comes near."""
    prepared = prepare(problem)
    if name == "ready":
        order = prepared.tables.topological
    elif name == "rank":
        mean = op_seconds(prepared, "mean"), transfer_seconds(prepared, "mean")
        order = by_rank(prepared, upward_ranks(prepared.tables, *mean))
    elif name == "placed-rank":
        order = by_rank(prepared, upward_ranks(prepared.tables, *placed_costs(problem, placement)))
    else:
        raise PlannerError(f"no order {name!r}; there are: {', '.join(ORDERS)}")
    priority = np.empty(problem.n_ops, dtype=np.int32)
    priority[order] = np.arange(problem.n_ops, dtype=np.int32)
    return priority


def placed_costs(problem: Problem, placement: Index) -> tuple[Float, Float]:
    """Seconds of each op where it is placed, and of each output to the farthest of its readers. float64 [n], float64 [u]."""
    return placed_costs_of(prepare(problem).tables, placement)


def placed_costs_of(tables: Tables, placement: Index) -> tuple[Float, Float]:
    """As `placed_costs`, of prepared arrays."""
    seconds = tables.seconds[np.arange(len(placement)), placement]
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    src, dst = placement[tables.output_op[output]], placement[tables.reader]
    slowest = np.zeros(len(tables.output_op))
    np.maximum.at(slowest, output, tables.latency[src, dst] + tables.output_bytes[output] / tables.bandwidth[src, dst])
    return seconds, slowest
