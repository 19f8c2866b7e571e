"""The wire contract at the hook's border: stepd.v1 messages from and to the hook's own values. Nothing here knows a stream."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.message import DecodeError

from stepd.hook.model import GraphDescription, LiveStrategy, Order, SessionDevice, Split, SwitchOutcome, Way
from stepd.hook.ports import StepKind
from stepd.hook.trial import Outcome, TrialVerdict
from stepd.v1 import profile_pb2, runtime_pb2, strategy_pb2

LARGE_NODE_BYTES = 1024

_WAY = {
    strategy_pb2.WAY_AUTO: Way.AUTO,
    strategy_pb2.WAY_IN_SESSION: Way.IN_SESSION,
    strategy_pb2.WAY_RESTART: Way.RESTART,
}
_WIRE_WAY = {way: number for number, way in _WAY.items()}
_OUTCOME = {
    Outcome.KEPT: runtime_pb2.Verdict.KEPT,
    Outcome.ROLLED_BACK: runtime_pb2.Verdict.ROLLED_BACK,
    Outcome.FAILED: runtime_pb2.Verdict.FAILED,
    Outcome.ABANDONED: runtime_pb2.Verdict.ABANDONED,
}
_ORDER = {
    strategy_pb2.ORDER_AUTO: Order.AUTO,
    strategy_pb2.ORDER_NATIVE: Order.NATIVE,
    strategy_pb2.ORDER_CONTROL: Order.CONTROL,
    strategy_pb2.ORDER_NONE: Order.NONE,
}


class MalformedStrategyError(ValueError):
    """A strategy message contradicts itself; the text says where."""


def strategy(message: runtime_pb2.Activate) -> LiveStrategy:
    """The strategy that a daemon asks for.

    Raises:
        MalformedStrategyError: lists of different lengths, or a device index that does not exist.
    """
    wire = message.strategy
    if len(wire.device) != len(wire.op):
        raise MalformedStrategyError(f"strategy {wire.id}: {len(wire.op)} ops but {len(wire.device)} devices")
    if wire.priority and len(wire.priority) != len(wire.op):
        raise MalformedStrategyError(f"strategy {wire.id}: {len(wire.op)} ops but {len(wire.priority)} priorities")
    if wire.seconds and len(wire.seconds) != len(wire.op):
        raise MalformedStrategyError(f"strategy {wire.id}: {len(wire.op)} ops but {len(wire.seconds)} durations")
    names = list(wire.devices)
    if any(index >= len(names) for index in wire.device):
        raise MalformedStrategyError(f"strategy {wire.id}: a device index is beyond its {len(names)} devices")
    return LiveStrategy(
        id=wire.id,
        placement={op: names[index] for op, index in zip(wire.op, wire.device, strict=True)},
        priority=dict(zip(wire.op, wire.priority, strict=True)) if wire.priority else {},
        seconds=dict(zip(wire.op, wire.seconds, strict=True)) if wire.seconds else {},
        splits=tuple(Split(s.op, s.axis, s.parts, tuple(s.device), tuple(s.weight), tuple(s.into)) for s in wire.splits),
        order=_ORDER.get(wire.order, Order.NONE) if wire.priority else Order.NONE,
        replicate=wire.replicate,
        graph_fingerprint=wire.graph_fingerprint,
        origin=message.origin or "planner",
        pin=message.pin,
        predicted_step_seconds=wire.predicted_step_seconds,
    )


def way(wire: strategy_pb2.Way.ValueType) -> Way:
    """The way of switching that a daemon asks for; unknown numbers of newer daemons mean "auto"."""
    return _WAY.get(wire, Way.AUTO)


def switch_report(session_id: str, outcome: SwitchOutcome) -> runtime_pb2.HookMessage:
    """What a switch did."""
    report = runtime_pb2.SwitchReport(
        session_id=session_id,
        strategy_id=outcome.strategy_id,
        way=_WIRE_WAY[outcome.way],
        ok=outcome.ok,
        error=outcome.error,
        honoured=outcome.honoured,
        prepare_seconds=outcome.prepare_seconds,
        wait_seconds=outcome.wait_seconds,
        why_this_way=outcome.why_this_way,
        order_in_force=outcome.order_in_force,
        splits_in_force=outcome.splits_in_force,
        rollback=outcome.rollback,
    )
    for miss in outcome.not_honoured:
        report.not_honoured.add(op=miss.op, asked=miss.asked, got=miss.got)
    return runtime_pb2.HookMessage(switch=report)


def verdict(session_id: str, verdict: TrialVerdict) -> runtime_pb2.HookMessage:
    """How a trial ended."""
    return runtime_pb2.HookMessage(
        verdict=runtime_pb2.Verdict(
            session_id=session_id,
            strategy_id=verdict.strategy_id,
            kind=verdict.kind,
            outcome=_OUTCOME[verdict.outcome],
            reason=verdict.reason,
            before_seconds=verdict.before_seconds,
            after_seconds=verdict.after_seconds,
            p_value=verdict.p_value,
            before_steps=verdict.before_steps,
            after_steps=verdict.after_steps,
        )
    )


def session_opened(
    session_id: str,
    target: str,
    devices: Iterable[SessionDevice],
    user_devices: str,
    obstacles: Iterable[str],
) -> runtime_pb2.HookMessage:
    """A session, its devices, and what keeps it from being restarted."""
    obstacles = list(obstacles)
    opened = runtime_pb2.SessionOpened(
        session_id=session_id,
        target=target,
        user_devices=user_devices,
        restart_possible=not obstacles,
        restart_obstacles=obstacles,
    )
    for device in devices:
        opened.device.add(**vars(device))
    return runtime_pb2.HookMessage(session_opened=opened)


def graph_report(
    session_id: str,
    graph: GraphDescription,
    kinds: Iterable[StepKind],
    with_graph: bool,
) -> runtime_pb2.HookMessage:
    """The user's graph, without large constants; without the graph itself when the daemon knows its fingerprint."""
    report = runtime_pb2.GraphReport(
        session_id=session_id,
        fingerprint=graph.fingerprint,
        graph_def=cut_constants(graph.graph_def) if with_graph else b"",
        device_kinds=[f"{op}={','.join(types)}" for op, types in sorted(graph.device_kinds.items())],
        notes=graph.notes,
        keeps_order=graph.keeps_order,
        keeps_types=graph.keeps_types,
    )
    for op, reason in graph.pinned.items():
        report.pinned.add(op=op, reason=reason)
    for offer in graph.splits:
        report.split.add(
            op=offer.op,
            axis=offer.axis,
            max_parts=offer.max_parts,
            cut_bytes=offer.cut_bytes,
            joined_bytes=offer.joined_bytes,
            adds=offer.adds,
        )
    for op, barrier in graph.lifted.items():
        report.lifted.add(op=op, control=barrier)
    for op, by in graph.shared.items():
        report.shared.add(op=op, by=by)
    for group in graph.colocated:
        report.colocated.add(op=group)
    for kind in kinds:
        report.kind.add(id=kind.id, fetch=kind.fetches, target=kind.targets, feed=kind.feeds)
    return runtime_pb2.HookMessage(graph=report)


def cut_constants(graph_def: bytes, limit: int = LARGE_NODE_BYTES) -> bytes:
    """A serialized GraphDef without the values of large constants (nodes over `limit` bytes).

    stepd's trimmed GraphDef has no field for tensor values, so that they are unknown fields there and can be discarded; all other
    fields, known or not, stay. Bytes that are no GraphDef are returned as they are: the daemon will say what is wrong with them.
    """
    graph = profile_pb2.GraphDef()
    try:
        graph.ParseFromString(graph_def)
    except DecodeError:
        return graph_def
    cut = False
    bodies = [function.node_def for function in graph.library.function]
    for nodes in (graph.node, *bodies):
        for node in nodes:
            if "value" in node.attr and node.ByteSize() > limit:
                node.attr["value"].DiscardUnknownFields()
                cut = True
    return graph.SerializeToString() if cut else graph_def
