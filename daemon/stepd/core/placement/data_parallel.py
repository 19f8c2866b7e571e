"""Data parallelism: tower k of a replicated graph on device k, the rest where its neighbours are (FastT section 5.2's start).

A graph that has no towers is not replicated here (that is a rewriting of the graph): all of it runs on one device, and
`planner["towers"]` is 0.
"""

from __future__ import annotations

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.name_scopes import tower_of_ops
from stepd.core.placement.orders import order_for
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Index, Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """Towers on devices in order, round robin. Parameter: `rest`: "near" (shared ops follow the bytes) or "first" (device 0: the
    parameter server of tf.estimator's and slim's towers), `order` of execution."""
    prepared = prepare(problem)
    towers = tower_of_ops(problem)
    wanted = np.where(towers >= 0, towers % problem.n_devices, -1).astype(np.int32)
    if options.parameter("rest", "near") == "near" and (towers >= 0).any():
        spread(prepared.tables, wanted, problem.n_devices)
    wanted[wanted < 0] = 0
    placement = nearest_allowed(prepared, wanted)
    priority = order_for(problem, placement, options.parameter("order", "rank"))
    return finish(problem, "data-parallel", options, placement, priority, towers=int(towers.max(initial=-1)) + 1)


@kernel
def spread(tables: Tables, wanted: Index, devices: int) -> None:
    """Give every op without a wish the device that most bytes of its inputs and placed readers are on, in topological order."""
    votes = np.zeros(devices)
    for op in tables.topological:
        if wanted[op] >= 0:
            continue
        votes[:] = 0.0
        for i in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            o = tables.input[i]
            if wanted[tables.output_op[o]] >= 0:
                votes[wanted[tables.output_op[o]]] += tables.output_bytes[o] + 1.0
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                device = wanted[tables.reader[r]]
                if device >= 0:
                    votes[device] += tables.output_bytes[o] + 1.0
        if votes.max() > 0.0:
            wanted[op] = np.argmax(votes)
