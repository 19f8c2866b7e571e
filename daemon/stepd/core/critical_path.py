"""Why a simulated step takes as long as it does: the chain of ops and transfers that ends with the step."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from stepd.core.prepared import Tables, prepare
from stepd.core.problem import Index, Problem
from stepd.core.simulator import Simulation


@dataclass(frozen=True)
class Segment:
    """One link of the chain. `dst` is the destination's index for a transfer, -1 for an op. Seconds since the step's start."""

    op: int
    device: int
    dst: int
    start: float
    end: float

    @property
    def is_transfer(self) -> bool:
        """Whether it is the sending of an output of `op` from `device` to `dst`."""
        return self.dst >= 0


def critical_path(problem: Problem, placement: Index, simulation: Simulation) -> list[Segment]:
    """The chain, first to last: each segment starts at the instant at which the one before it ends.

    What held a segment back is, in this order: an input (produced here or arrived), the device's op before it; for a transfer its
    producer, or the transfer before it on a link that it holds.
    """
    trace = _Trace(problem, placement, simulation)
    at: Segment | None = trace.op(int(np.argmax(simulation.finish)))
    chain: list[Segment] = []
    seen: set[Segment] = set()
    while at is not None:
        chain.append(at)
        seen.add(at)
        before = trace.before_transfer(at) if at.is_transfer else trace.before_op(at)
        at = next((segment for segment in before if segment not in seen), None)
    return chain[::-1]


class _Trace:
    """Ends of ops and transfers, found by the device or link and the instant."""

    def __init__(self, problem: Problem, placement: Index, simulation: Simulation) -> None:
        self._tables: Tables = prepare(problem).tables
        self._placement = placement
        self._start, self._finish = simulation.start, simulation.finish
        self._d = problem.n_devices
        self._ended: defaultdict[tuple[int, float], list[int]] = defaultdict(list)
        for i in range(problem.n_ops):
            self._ended[(int(placement[i]), float(self._finish[i]))].append(i)
        transfers = simulation.transfers
        columns = (transfers.op, transfers.src, transfers.dst, transfers.start, transfers.end)
        self._segments = [Segment(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
        outputs = transfers.output.tolist()
        self._arrival = {(u, s.dst): s for u, s in zip(outputs, self._segments, strict=True)}
        self._freed: defaultdict[tuple[int, float], list[Segment]] = defaultdict(list)
        for segment in self._segments:
            for link in self._route(segment):
                self._freed[(link, segment.end)].append(segment)

    def op(self, i: int) -> Segment:
        """Op i as a segment."""
        return Segment(i, int(self._placement[i]), -1, float(self._start[i]), float(self._finish[i]))

    def before_op(self, at: Segment) -> list[Segment]:
        """What ended when `at` could start: inputs first, then ops of its device (those that took time before those of 0 s)."""
        tables, found = self._tables, []
        for u in tables.input[tables.input_pointer[at.op] : tables.input_pointer[at.op + 1]].tolist():
            arrival = self._arrival.get((u, at.device))
            source = arrival or self.op(int(tables.output_op[u]))
            if source.end == at.start:
                found.append(source)
        here = [self.op(i) for i in self._ended[(at.device, at.start)] if i != at.op]
        return found + sorted(here, key=lambda segment: segment.start)

    def before_transfer(self, at: Segment) -> list[Segment]:
        """Its producer, where that ended just then; else the transfer that freed the last of its links."""
        producer = self.op(at.op)
        if producer.end == at.start:
            return [producer]
        return [s for link in self._route(at) for s in self._freed[(link, at.start)]]

    def _route(self, transfer: Segment) -> list[int]:
        pair = transfer.device * self._d + transfer.dst
        links: list[int] = self._tables.route_link[self._tables.route_pointer[pair] : self._tables.route_pointer[pair + 1]].tolist()
        return links
