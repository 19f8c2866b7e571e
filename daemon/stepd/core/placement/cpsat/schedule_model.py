"""The constraint program: intervals for ops on devices and transfers on links, which may not overlap; memory as cumulative use.

Pesto's ILP (section 3.2.2: constraints 1-9) and Moirai's MILP (section III-D: equations 4-8) in the form that CP-SAT solves best:
x_ik are the `on` literals, z and u_qk'k'' the transfers' literals, the non-overlapping and congestion constraints no_overlap.
Devices may be of any number and kind; a transfer over several links takes part in the no_overlap of each. An output is sent to a
device once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from stepd.core.placement.cpsat.units import Units
from stepd.core.placement.ranks import op_seconds, top_levels, upward_ranks
from stepd.core.prepared import Prepared

Var = Any  # ortools is untyped


@dataclass
class Transfer:
    """Output `output` to device `dst`. sent: source device -> literal. start, end: ticks; `end` is free where nothing is sent."""

    output: int
    dst: int
    sent: dict[int, Var]
    start: Var
    end: Var


@dataclass
class ScheduleModel:
    """The model and its variables. on[g][d]: literal or None (cannot run); start, end: per op; span[i][d]: interval."""

    cp: Var
    prepared: Prepared
    units: Units
    horizon: int
    on: list[dict[int, Var]] = field(default_factory=list)
    start: list[Var] = field(default_factory=list)
    end: list[Var] = field(default_factory=list)
    span: list[dict[int, Var]] = field(default_factory=list)
    transfers: dict[tuple[int, int], Transfer] = field(default_factory=dict)
    makespan: Var = None
    true: Var = None

    def op_on(self, op: int) -> dict[int, Var]:
        """Device -> literal, of the devices that `op` may be placed on."""
        return self.on[int(self.prepared.tables.group[op])]

    def readers(self, output: int) -> list[int]:
        """Ops that read `output`."""
        tables = self.prepared.tables
        first, last = tables.reader_pointer[output], tables.reader_pointer[output + 1]
        return [int(op) for op in tables.reader[first:last]]

    def outputs(self) -> range:
        """All outputs."""
        return range(len(self.prepared.tables.output_op))

    def producer(self, output: int) -> int:
        """The op that makes `output`."""
        return int(self.prepared.tables.output_op[output])

    def lasts(self, seconds: float) -> tuple[int, int]:
        """The least and the largest number of ticks that something may take."""
        return self.units.ticks(seconds), self.units.most_ticks(seconds)

    def transfer_lasts(self, output: int, src: int, dst: int) -> tuple[int, int]:
        """The same of `output` from device to device."""
        tables = self.prepared.tables
        return self.lasts(tables.latency[src, dst] + tables.output_bytes[output] / tables.bandwidth[src, dst])

    def optional_span(self, start: Var, lasts: tuple[int, int], end: Var, here: Var, name: str) -> Var:
        """An interval that is there when `here` is true."""
        least, most = lasts
        size = least if least == most else self.cp.new_int_var(least, most, f"lasts_{name}")
        return self.cp.new_optional_interval_var(start, size, end, here, name)

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """The links that a transfer holds."""
        return self.prepared.routes[src, dst].links


def build(prepared: Prepared, units: Units, horizon: int) -> ScheduleModel:
    """Everything but memory: ops, transfers, and the makespan as objective. `horizon`: ticks within which an answer is known."""
    model = ScheduleModel(cp_model.CpModel(), prepared, units, horizon)
    _add_placement(model)
    _add_ops(model)
    for output in model.outputs():
        _add_transfers(model, output)
    _add_links(model)
    model.cp.minimize(model.makespan)
    return model


def _add_placement(model: ScheduleModel) -> None:
    """Every colocation group on one device (Moirai 4c; Pesto's x_i1 = ... = x_ik)."""
    model.true = model.cp.new_constant(1)
    for seconds in model.prepared.group_seconds:
        allowed = [int(d) for d in np.flatnonzero(np.isfinite(seconds))]
        if len(allowed) == 1:
            model.on.append({allowed[0]: model.true})
            continue
        model.on.append({d: model.cp.new_bool_var(f"on_{len(model.on)}_{d}") for d in allowed})
        model.cp.add_exactly_one(model.on[-1].values())


def _add_ops(model: ScheduleModel) -> None:
    """Start, end and intervals of ops (Pesto 2-4, Moirai 4b and 6), the makespan, and the devices' load as a bound on it."""
    cp, tables, units = model.cp, model.prepared.tables, model.units
    none = np.zeros(len(tables.output_op))
    shortest = op_seconds(model.prepared, "min")
    heads, tails = top_levels(tables, shortest, none), upward_ranks(tables, shortest, none)
    model.makespan = cp.new_int_var(units.ticks(float(tails.max(initial=0.0))), model.horizon, "makespan")
    for i in range(len(shortest)):
        earliest, rest = units.ticks(heads[i]), units.ticks(tails[i])
        start = cp.new_int_var(earliest, max(earliest, model.horizon - rest), f"start_{i}")
        sizes = {d: model.lasts(tables.seconds[i, d]) for d in model.op_on(i)}
        one = next(iter(sizes.values()))
        same = len(set(sizes.values())) == 1 and one[0] == one[1]
        end = start + one[0] if same else cp.new_int_var(0, model.horizon, f"end_{i}")
        spans = {d: model.optional_span(start, size, end, model.op_on(i)[d], f"op_{i}_{d}") for d, size in sizes.items()}
        model.start.append(start)
        model.end.append(end)
        model.span.append(spans)
        cp.add(end <= model.makespan)
    for d in range(len(tables.memory)):
        here = [i for i in range(len(shortest)) if d in model.span[i]]
        cp.add_no_overlap([model.span[i][d] for i in here])
        cp.add(sum(units.ticks(tables.seconds[i, d]) * model.op_on(i)[d] for i in here) <= model.makespan)


def _add_transfers(model: ScheduleModel, output: int) -> None:
    """Precedence (Pesto 1, Moirai 4a), and the transfers of one output to the devices that its readers may be on (Pesto 5-6,
    Moirai 7)."""
    cp, producer, readers = model.cp, model.producer(output), model.readers(output)
    for reader in readers:
        cp.add(model.start[reader] >= model.end[producer])
    home = model.op_on(producer)
    group = model.prepared.tables.group
    for dst in range(len(model.prepared.tables.memory)):
        there = [r for r in readers if dst in model.op_on(r) and group[r] != group[producer]]
        sources = [s for s in home if s != dst]
        if not there or not sources:
            continue
        transfer = Transfer(
            output,
            dst,
            {},
            cp.new_int_var(0, model.horizon, f"send_{output}_{dst}"),
            cp.new_int_var(0, model.horizon, f"sent_{output}_{dst}"),
        )
        cp.add(transfer.start >= model.end[producer])
        for src in sources:
            _add_route(model, transfer, there, src)
        if transfer.sent:
            model.transfers[output, dst] = transfer
            for reader in there:
                cp.add(model.start[reader] >= transfer.end).only_enforce_if(model.op_on(reader)[dst])


def _add_route(model: ScheduleModel, transfer: Transfer, readers: list[int], src: int) -> None:
    """The literal that the output goes from `src`: exactly when it is made there and some reader is at the destination."""
    cp, dst, made_here = model.cp, transfer.dst, model.op_on(model.producer(transfer.output))[src]
    wanted = {model.op_on(reader)[dst].index: model.op_on(reader)[dst] for reader in readers}
    if (src, dst) not in model.prepared.routes:
        for there in wanted.values():
            cp.add_bool_or(~made_here, ~there)
        return
    sent = cp.new_bool_var(f"sent_{transfer.output}_{src}_{dst}")
    for there in wanted.values():
        cp.add_bool_or(~made_here, ~there, sent)
    cp.add_implication(sent, made_here)
    cp.add_bool_or(~sent, *wanted.values())
    transfer.sent[src] = sent


def _add_links(model: ScheduleModel) -> None:
    """Congestion (Pesto 7, Moirai 8): a link carries one transfer at a time; a transfer over several holds all of them."""
    on_link: dict[int, list[Var]] = {}
    for transfer in model.transfers.values():
        for src, sent in transfer.sent.items():
            lasts = model.transfer_lasts(transfer.output, src, transfer.dst)
            name = f"transfer_{transfer.output}_{src}_{transfer.dst}"
            span = model.optional_span(transfer.start, lasts, transfer.end, sent, name)
            for link in model.route(src, transfer.dst):
                on_link.setdefault(link, []).append(span)
    for spans in on_link.values():
        model.cp.add_no_overlap(spans)
