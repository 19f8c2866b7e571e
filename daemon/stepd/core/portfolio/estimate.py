"""How long a step would take with some ops elsewhere, if all ops started in the order in which they last did.

One walk back over the ops in that order, each before what its device runs next and before what waits for its outputs: a sixth of
a simulation's time. Links carry one transfer at a time, in the order of their producers. What it leaves out: an order that adapts
to the new placement, and memory. It says less than a simulation and more than the longest path, which knows of no queue. It
simulates nothing and knows no moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stepd.core.compiled import inlined, kernel
from stepd.core.prepared import Tables
from stepd.core.problem import Float, Index

DOUBT = 0.01
"""By which share of the step an estimate may be too long before a search believes it."""
MANY_OPS = 800
"""On smaller problems simulations that fail end soon, and an estimate takes as long."""


def doubt_of(n_ops: int) -> float:
    """The `doubt` of chains on a problem of `n_ops` ops."""
    return DOUBT if n_ops >= MANY_OPS else np.inf


class Outlook(NamedTuple):
    """The order to estimate by, and what the last estimate found."""

    order: Index  # [n] ops, the first to start first
    way: Float  # [n] seconds from an op's start to the end of the step
    sent: Float  # [1] seconds that transfers take of a link, on average over the links
    device: Float  # [d] scratch: the way from what each device runs next
    link: Float  # [l] scratch: the same for each link
    far: Float  # [d] scratch: the longest way of an output's readers on each device, -1 where there are none


@kernel
def new_outlook(tables: Tables, order: Index) -> Outlook:
    """Room for estimates by `order` int32 [n], producers before consumers."""
    n, d = tables.seconds.shape
    return Outlook(order.copy(), np.zeros(n), np.zeros(1), np.zeros(d), np.zeros(tables.n_links), np.full(d, -1.0))


@inlined
def estimate(tables: Tables, outlook: Outlook, placement: Index) -> float:
    """Seconds of the step in the order of `outlook`; fills its `way` and `sent`. inf where no path connects two ops."""
    outlook.device[:] = 0.0
    outlook.link[:] = 0.0
    outlook.sent[0] = 0.0
    step = 0.0
    for at in range(len(placement) - 1, -1, -1):
        op = outlook.order[at]
        home = placement[op]
        longest, sending = 0.0, 0.0
        for output in range(tables.output_pointer[op + 1] - 1, tables.output_pointer[op] - 1, -1):
            remote = False
            for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                reader = tables.reader[k]
                there = placement[reader]
                if there == home:
                    longest = max(longest, outlook.way[reader])
                else:
                    outlook.far[there] = max(outlook.far[there], outlook.way[reader])
                    remote = True
            if remote:
                for device in range(len(outlook.far) - 1, -1, -1):
                    if outlook.far[device] >= 0.0:
                        longest = max(longest, _sent(tables, outlook, output, home, device))
                        sending += tables.handling[0, home, device] + tables.handling[1, home, device] * tables.output_bytes[output]
        longest = max(longest, outlook.device[home] + sending)
        outlook.way[op] = longest + tables.seconds[op, home]
        outlook.device[home] = outlook.way[op]
        step = max(step, outlook.way[op])
    outlook.sent[0] /= max(1, tables.n_links)
    return step


@inlined
def _sent(tables: Tables, outlook: Outlook, output: int, home: int, device: int) -> float:
    """The way from the start of the transfer of `output` to `device`, whose readers there `outlook.far` knows."""
    pair = home * len(outlook.far) + device
    first, last = tables.route_pointer[pair], tables.route_pointer[pair + 1]
    way: float = outlook.far[device]
    outlook.far[device] = -1.0
    for k in range(first, last):
        way = max(way, outlook.link[tables.route_link[k]])
    lasts = tables.latency[home, device] + tables.output_bytes[output] / tables.bandwidth[home, device]
    way += lasts
    for k in range(first, last):
        outlook.link[tables.route_link[k]] = way
    if last > first:  # what no path connects takes no link; its way says that it cannot run
        outlook.sent[0] += (last - first) * lasts
    outlook.device[device] += tables.handling[0, home, device] + tables.handling[1, home, device] * tables.output_bytes[output]
    return way
