"""Memory of devices as cumulative use over time, as PROBLEM_FORMAT counts it (Pesto 8 and Moirai 5 add up footprints instead)."""

from __future__ import annotations

import numpy as np

from stepd.core.placement.cpsat.schedule_model import ScheduleModel, Transfer, Var
from stepd.core.placement.cpsat.units import most_bytes
from stepd.core.validation import op_memory


def always_fits(model: ScheduleModel) -> bool:
    """Whether no placement can overflow a device: then memory needs no constraints."""
    tables = model.prepared.tables
    return most_bytes(tables) <= int(tables.memory.min())


def add_memory(model: ScheduleModel) -> None:
    """On each device: temp bytes of running ops, outputs made there and copies received, within what resident bytes leave."""
    tables, units = model.prepared.tables, model.units
    held = op_memory(tables)  # at an instant, which use over time does not count
    uses: list[list[tuple[Var, int]]] = [[] for _ in tables.memory]
    for i, spans in enumerate(model.span):
        for d, span in spans.items():
            if tables.temp[i] and tables.seconds[i, d]:
                uses[d].append((span, units.units(tables.temp[i])))
    for output in model.outputs():
        if tables.output_bytes[output]:
            size = units.units(tables.output_bytes[output])
            for d, span in _made(model, output).items():
                uses[d].append((span, size))
            for d in range(len(uses)):
                if (output, d) in model.transfers:
                    uses[d].append((_received(model, model.transfers[output, d]), size))
    for d, use in enumerate(uses):
        capacity = units.units(min(int(tables.memory[d]), most_bytes(tables)))
        free = model.cp.new_int_var(0, capacity, f"free_{d}")
        resident = sum(
            units.units(model.prepared.group_resident[g]) * on[d]
            for g, on in enumerate(model.on)
            if d in on and model.prepared.group_resident[g]
        )
        model.cp.add(free + resident == capacity)
        if use:
            model.cp.add_cumulative([span for span, _ in use], [size for _, size in use], free)
        for i in np.flatnonzero(tables.seconds[:, d] == 0).tolist():
            if d in model.span[i]:
                model.cp.add(free >= units.units(held[i])).only_enforce_if(model.op_on(i)[d])


def _made(model: ScheduleModel, output: int) -> dict[int, Var]:
    """The output where it is made, from its producer's end until the last reader there and the last transfer from there."""
    cp, producer = model.cp, model.producer(output)
    early = model.units.early
    gone = cp.new_int_var(0, model.horizon + early, f"gone_{output}")
    cp.add(gone >= model.end[producer])
    for reader in model.readers(output):
        for d, on in model.op_on(producer).items():
            if d in model.op_on(reader):
                cp.add(gone >= model.end[reader]).only_enforce_if(on, model.op_on(reader)[d])
    for d in range(len(model.prepared.tables.memory)):
        if (output, d) in model.transfers:
            transfer = model.transfers[output, d]
            for sent in transfer.sent.values():
                cp.add(gone >= transfer.end).only_enforce_if(sent)
    return {
        d: cp.new_optional_interval_var(
            model.end[producer] + early, cp.new_int_var(0, model.horizon, f"kept_{output}_{d}"), gone, on, f"made_{output}_{d}"
        )
        for d, on in model.op_on(producer).items()
    }


def _received(model: ScheduleModel, transfer: Transfer) -> Var:
    """The copy at the destination, from its arrival until its last reader there."""
    cp, name = model.cp, f"{transfer.output}_{transfer.dst}"
    if len(transfer.sent) == 1:
        here = next(iter(transfer.sent.values()))
    else:
        here = cp.new_bool_var(f"here_{name}")
        cp.add(sum(transfer.sent.values()) == here)
    early = model.units.early
    left = cp.new_int_var(0, model.horizon + early, f"left_{name}")
    for reader in model.readers(transfer.output):
        if transfer.dst in model.op_on(reader):
            cp.add(left >= model.end[reader]).only_enforce_if(here, model.op_on(reader)[transfer.dst])
    stays = cp.new_int_var(0, model.horizon, f"stays_{name}")
    return cp.new_optional_interval_var(transfer.end + early, stays, left, here, f"received_{name}")
