"""`stepctl show JOB`: one job in full."""

from __future__ import annotations

import os.path
import re
from collections import Counter

import typer
from google.protobuf.json_format import MessageToDict
from rich.console import Console

from stepd.cli.client import TIMEOUT_SECONDS, operator
from stepd.cli.options import JobArgument, OutputOption, target_of
from stepd.cli.render import Output, ago, console, duration, print_json, size, table
from stepd.v1 import operator_pb2, runtime_pb2, strategy_pb2

SHOWN = 20
OWN = "the program's own placement"
_NEEDED = re.compile(r"needed by \S+, which stays")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(show)


def show(context: typer.Context, job: JobArgument, output: OutputOption = Output.table) -> None:
    """One job: strategy in force per device, pinned ops and why, last switch, order and splits in force."""
    with operator(target_of(context)) as stub:
        answer = stub.GetJob(operator_pb2.GetJobRequest(job=job), timeout=TIMEOUT_SECONDS)
    if output is Output.json:
        print_json(MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
        return
    out = console()
    head = answer.job
    out.print(f"job {head.id}  {head.name}  pid {head.pid} on {head.hostname}, TensorFlow {head.tensorflow_version}")
    out.print(f"hook: {'active' if head.compatibility.active else 'inactive'} {head.compatibility.reason}".rstrip())
    out.print(f"last heard of {ago(head.last_seen_unix_nanos)}{', paused' if head.paused else ''}")
    for session in head.session:
        detail = next((d for d in answer.detail if d.session_id == session.id), None)
        if detail is not None:
            _show_session(out, session, detail)


def _show_session(out: Console, session: operator_pb2.Session, detail: operator_pb2.SessionDetail) -> None:
    out.print(f"\nsession {session.id}: {session.state}  {session.note}")
    out.print(
        f"step time {duration(session.seconds_before)} before, {duration(session.seconds_now)} now, "
        f"{duration(session.predicted_seconds)} predicted; {session.steps} steps, {session.ops} ops"
    )
    if detail.model_error >= 0:
        out.print(f"the model's own error on what was measured: {detail.model_error:.1%}")
    strategy = detail.strategy
    closed = {device.name for device in session.device if not device.usable}
    out.print(f"strategy: {strategy.id or OWN}")
    rows = [
        (
            d.name if d.name not in closed else f"{d.name} (pinned ops only)",
            str(d.ops),
            f"{d.busy_fraction:.0%}" if d.busy_fraction else "-",
            size(d.peak_bytes),
            size(d.memory_bytes),
        )
        for d in detail.device
    ]
    out.print(table(("DEVICE", "OPS", "BUSY (PREDICTED)", "PEAK (PREDICTED)", "MEMORY"), rows))
    if strategy.splits:
        cut = [(s.op, s.axis, str(s.parts), _parts_on(s), _added_up(s)) for s in strategy.splits[:SHOWN]]
        out.print(table(("SPLIT", "AXIS", "PARTS", "ON", "ADDED UP"), cut))
        shapes = Counter(shape for s in strategy.splits if (shape := _added_up(s)))
        if shapes:
            out.print(f"sums over devices: {', '.join(f'{n} {shape}' for shape, n in shapes.items())}; the others at once")
    if detail.user_devices:
        out.print(f"tf.device in user code: {detail.user_devices}")
    if detail.HasField("last_switch"):
        _show_switch(out, detail.last_switch)
    _show_pinned(out, detail)
    for note in detail.notes:
        out.print(f"note: {note}")


def _parts_on(split: strategy_pb2.Split) -> str:
    """Each part's device, by what tells it from the others', and its share where they are unequal."""
    apart = set(split.device)
    shared = os.path.commonpath(apart) if len(apart) > 1 else os.path.dirname(next(iter(apart), ""))  # noqa: PTH120 - no file
    names = [name.removeprefix(shared).lstrip("/") for name in split.device] or ["the op's device"]
    if len(set(split.weight)) < 2 or len(split.weight) != len(names):
        return ", ".join(names)
    return ", ".join(f"{name} ({weight / sum(split.weight):.0%})" for name, weight in zip(names, split.weight, strict=True))


def _added_up(split: strategy_pb2.Split) -> str:
    """How the terms of a sum are added up where that is not at once."""
    slices = len(split.into) // max(1, split.parts)
    return "" if not slices else "by a tree" if slices == 1 else f"in {slices} slices"


def _show_switch(out: Console, switch: runtime_pb2.SwitchReport) -> None:
    to = switch.strategy_id or OWN
    way = strategy_pb2.Way.Name(switch.way).removeprefix("WAY_").lower().replace("_", " ")
    done = "ok" if switch.ok else f"failed: {switch.error}"
    out.print(f"last switch: to {to}, {way} ({switch.why_this_way or 'no reason given'}): {done}")
    out.print(
        f"  {switch.honoured} ops are where asked, {len(switch.not_honoured)} not; prepared in {duration(switch.prepare_seconds)}; "
        f"waited {duration(switch.wait_seconds)}; order: {switch.order_in_force or 'none'}; splits: {switch.splits_in_force}"
    )
    for op in switch.not_honoured[:SHOWN]:
        out.print(f"  not honoured: {op.op} asked {op.asked}, got {op.got}")


def _show_pinned(out: Console, detail: operator_pb2.SessionDetail) -> None:
    reasons: dict[str, list[str]] = {}
    for item in detail.pinned:
        reasons.setdefault(_NEEDED.sub("needed by an op that stays", item.reason), []).append(item.op)
    rows = [(str(len(ops)), reason, ", ".join(ops[:3])) for reason, ops in reasons.items()]
    if rows:
        out.print(table(("PINNED OPS", "WHY", "SUCH AS"), rows))
