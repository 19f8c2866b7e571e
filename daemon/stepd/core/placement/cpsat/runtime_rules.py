"""What a runtime does by itself, and a constraint program need not: the rest of the execution model of PROBLEM_FORMAT.

A device is never idle while an op of its is ready, and a link serves transfers in the order in which their producers end, as soon
as it is free. Without these rules a model is a relaxation: its schedules may wait on purpose, which no order of ops can ask of a
runtime. They cost a literal for every pair of ops, so they are for small problems. Not expressed: which of several ops of 0 seconds
goes first at one instant.
"""

from __future__ import annotations

from stepd.core.placement.cpsat.schedule_model import ScheduleModel, Transfer, Var


def add_runtime_rules(model: ScheduleModel) -> None:
    """Work-conserving devices, and links that serve first come, first served."""
    _define_arrivals(model)
    _add_busy_devices(model)
    _add_served_in_order(model)


def _define_arrivals(model: ScheduleModel) -> None:
    """Where an output is made its copy is there at once: `Transfer.end` becomes the arrival on the device in every case."""
    for (output, dst), transfer in model.transfers.items():
        made_here = model.op_on(model.producer(output)).get(dst)
        if made_here is not None:
            model.cp.add(transfer.end == model.end[model.producer(output)]).only_enforce_if(made_here)


def _ready(model: ScheduleModel, op: int) -> Var:
    """When the last input of `op` is on its device."""
    cp, tables = model.cp, model.prepared.tables
    arrivals = [cp.new_constant(0)]
    for output in tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]].tolist():
        arrival = cp.new_int_var(0, model.horizon, f"arrival_{output}_{op}")
        for d, on in model.op_on(op).items():
            transfer = model.transfers.get((output, d))
            together = tables.group[op] == tables.group[model.producer(output)]
            when = model.end[model.producer(output)] if transfer is None or together else transfer.end
            cp.add(arrival == when).only_enforce_if(on)
        arrivals.append(arrival)
    ready = cp.new_int_var(0, model.horizon, f"ready_{op}")
    cp.add_max_equality(ready, arrivals)
    return ready


def _add_busy_devices(model: ScheduleModel) -> None:
    """`since` of an op: its device is busy from then until the op starts. It must not be later than the op is ready."""
    cp, tables = model.cp, model.prepared.tables
    since = [cp.new_int_var(0, model.horizon, f"since_{i}") for i in range(len(model.start))]
    for i, start in enumerate(model.start):
        first = cp.new_bool_var(f"first_{i}")
        cp.add(since[i] == start).only_enforce_if(first)
        reasons = [first]
        for j in range(len(model.start)):
            shared = model.op_on(i).keys() & model.op_on(j).keys()
            # An op of no length keeps nothing busy; whatever ended with it does.
            if j == i or not shared or not any(tables.seconds[j, d] > 0 for d in model.op_on(j)):
                continue
            follows = cp.new_bool_var(f"follows_{j}_{i}")
            cp.add(start == model.end[j]).only_enforce_if(follows)
            cp.add(since[i] == since[j]).only_enforce_if(follows)
            for d, on in model.op_on(i).items():
                cp.add_bool_or(~follows, ~on, *([model.op_on(j)[d]] if d in shared else []))
            reasons.append(follows)
        cp.add_bool_or(reasons)
        cp.add(_ready(model, i) >= since[i])


def _add_served_in_order(model: ScheduleModel) -> None:
    """Transfers that share a link: by (producer's end, producer, destination, output), each as soon as its links are free."""
    cp = model.cp
    ways = [(transfer, src, sent) for transfer in model.transfers.values() for src, sent in transfer.sent.items()]
    earlier: dict[tuple[int, int], Var] = {}
    for transfer, src, sent in ways:
        made = model.end[model.producer(transfer.output)]
        at_once = cp.new_bool_var("at_once")
        cp.add(transfer.start == made).only_enforce_if(at_once)
        reasons = [at_once]
        for other, other_src, other_sent in ways:
            if other is transfer or not set(model.route(src, transfer.dst)) & set(model.route(other_src, other.dst)):
                continue
            comes_first = _comes_first(model, earlier, other, transfer)
            cp.add(transfer.start >= other.end).only_enforce_if(sent, other_sent, comes_first)
            behind = cp.new_bool_var("behind")
            cp.add(transfer.start == other.end).only_enforce_if(behind)
            cp.add_implication(behind, other_sent)
            cp.add_implication(behind, comes_first)
            reasons.append(behind)
        cp.add_bool_or(~sent, *reasons)


def _comes_first(model: ScheduleModel, earlier: dict[tuple[int, int], Var], one: Transfer, other: Transfer) -> Var:
    """The literal that `one` is reserved before `other`."""
    a, b = model.producer(one.output), model.producer(other.output)
    if a == b:
        return model.true if (one.dst, one.output) < (other.dst, other.output) else ~model.true
    if (a, b) not in earlier:
        first = model.cp.new_bool_var(f"earlier_{a}_{b}")
        model.cp.add(model.end[a] <= model.end[b]).only_enforce_if(first)
        model.cp.add(model.end[b] <= model.end[a]).only_enforce_if(~first)
        earlier[a, b], earlier[b, a] = first, ~first
    return earlier[a, b]
