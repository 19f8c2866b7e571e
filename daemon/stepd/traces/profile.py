"""RunMetadata bytes, as TensorFlow wrote them, to one StepObservation.

Trace names are not always graph names: an exact name counts; else the name without the runtime's suffix
("/_12"), unless another entry has the exact name; else the name in the timeline label; else the time is
the runtime's overhead. "RecvTensor" entries are transfers, kernels on "stream:all" lines are what a GPU
really did, and copies on "memcpy" lines are transfers between the GPUs of a process and its host, which
have no RecvTensor entries.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from google.protobuf.message import DecodeError

from stepd.core.cost.launches import device_seconds
from stepd.core.cost.observation import DeviceObservation, StepObservation, share_overlaps
from stepd.core.graph import element_bytes
from stepd.core.problem import Float
from stepd.traces.transfers import Sent, canonical, copied, interval, received, share_links
from stepd.v1 import profile_pb2

_SUFFIX = re.compile(r"/_\d+$")
_LABEL = re.compile(r"^(?:\[[^\]]*\] )*(?P<name>\S+) = (?P<op>\w+)\(")
_STREAM = re.compile(r"^(?P<device>.*/device:GPU:\d+)/stream:all$", re.IGNORECASE)
_MEMCPY = re.compile(r"^(?P<device>.*/device:GPU:)(?P<index>\d+)/memcpy$", re.IGNORECASE)
_RUNTIME_OPS = frozenset({"_Send", "_Recv", "_HostSend", "_HostRecv", "_SOURCE", "_SINK"})


@dataclass
class _Line:
    """Entries of one device: op (None: the runtime's own), is the entry called as the op is, start and end in seconds."""

    ops: list[str | None] = field(default_factory=list)
    exact: list[bool] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)

    def add(self, op: str | None, stats: profile_pb2.NodeExecStats) -> None:
        begin, end = interval(stats)
        self.ops.append(op)
        self.exact.append(op == stats.node_name)
        self.start.append(begin)
        self.end.append(end)

    def named(self) -> set[str]:
        """Ops that an entry is called after."""
        return {op for op, exact in zip(self.ops, self.exact, strict=True) if exact and op is not None}

    def leave(self, ops: Collection[str]) -> None:
        """What is called after one of `ops`, but not as it is, is the runtime's own."""
        kept = zip(self.ops, self.exact, strict=True)
        self.ops = [op if exact or op not in ops else None for op, exact in kept]


def parse_profile(
    run_metadata: bytes,
    ops: Collection[str],
    devices: Collection[str],
    *,
    batch: Iterable[int],
    seconds: float,
) -> StepObservation:
    """What the step showed. `ops`: names of the user's graph. ValueError: the bytes are no RunMetadata or
    hold no step.
    """
    try:
        metadata = profile_pb2.RunMetadata.FromString(run_metadata)
    except DecodeError as error:
        raise ValueError(f"the profile is not a RunMetadata: {error}") from error
    if not metadata.step_stats.dev_stats:
        raise ValueError("the profile holds no step statistics: was the run traced?")
    return observed(metadata, ops, devices, batch=batch, seconds=seconds)


def observed(
    metadata: profile_pb2.RunMetadata,
    ops: Collection[str],
    devices: Collection[str],
    *,
    batch: Iterable[int] = (),
    seconds: float = 0.0,
) -> StepObservation:
    """As `parse_profile`, of what is parsed already."""
    host: dict[str, _Line] = {}
    stream: dict[str, _Line] = {}
    transfers: list[Sent] = []
    observation = StepObservation((), batch=max(batch, default=0), step_seconds=seconds)
    for entry in metadata.step_stats.dev_stats:
        gpu = _STREAM.match(entry.device)
        if gpu:
            _read_stream(entry, stream.setdefault(canonical(gpu["device"], devices), _Line()), ops)
        elif memcpy := _MEMCPY.match(entry.device):
            transfers.extend(copied(entry, memcpy["device"], int(memcpy["index"]), devices))
        elif entry.device in devices:
            transfers.extend(_read_host(entry, host.setdefault(entry.device, _Line()), ops, observation))
    return _observation(host, stream, transfers, observation)


def _read_host(entry: profile_pb2.DeviceStepStats, line: _Line, ops: Collection[str], into: StepObservation) -> Iterator[Sent]:
    for stats in entry.node_stats:
        if stats.node_name == "RecvTensor":
            if transfer := received(stats):
                yield transfer
            continue
        op = _op_of(stats, ops)
        line.add(op, stats)
        if op is None:
            continue
        slots = into.output_bytes.setdefault(op, {})
        for output in stats.output:
            slots[output.slot] = max(slots.get(output.slot, 0), _bytes(output.tensor_description))
        into.temp_bytes[op] = max(into.temp_bytes.get(op, 0), stats.memory_stats.temp_memory_size)
        if stats.memory_stats.persistent_memory_size:
            into.resident_bytes[op] = stats.memory_stats.persistent_memory_size


def _bytes(tensor: profile_pb2.TensorDescription) -> int:
    """What was allocated for it, else what its shape asks for."""
    if tensor.allocation_description.requested_bytes > 0:
        return int(tensor.allocation_description.requested_bytes)
    return math.prod(max(0, dim.size) for dim in tensor.shape.dim) * element_bytes(tensor.dtype)


def _read_stream(entry: profile_pb2.DeviceStepStats, line: _Line, ops: Collection[str]) -> None:
    """Kernel times; a kernel's name is its op's, with the kernel's own name behind a colon."""
    for stats in entry.node_stats:
        op = _op_of(stats, ops)
        if op is None:
            head = stats.node_name.partition(":")[0]
            op = next((name for name in (head, _SUFFIX.sub("", head)) if name in ops), None)
        line.add(op, stats)


def _op_of(stats: profile_pb2.NodeExecStats, ops: Collection[str]) -> str | None:
    """The op of the user's graph that a trace entry belongs to; None: the runtime's own."""
    name = stats.node_name
    label = _LABEL.match(stats.timeline_label)
    if label and label["op"] in _RUNTIME_OPS:
        return None
    if name in ops:
        return name
    stripped = _SUFFIX.sub("", name)
    if stripped in ops:
        return stripped
    if label:
        labelled = _SUFFIX.sub("", label["name"])
        return labelled if labelled in ops else None
    return None


def _observation(
    host: dict[str, _Line], stream: dict[str, _Line], transfers: list[Sent], sizes: StepObservation
) -> StepObservation:
    seen, notes = [], []
    # Whoever waits for an op of another device does so by an Identity that is called after it ("up/_7").
    named = set[str]().union(*(line.named() for line in host.values()))
    for line in host.values():
        line.leave(named)
    kernels, overhead = _kernels(host, stream)
    for device, line in host.items():
        real = kernels.get(device)
        if "/device:GPU" in device and real is None:
            notes.append(f"no kernel times of {device} in the trace: host times are used (CUPTI held by another tool or denied?)")
        times, own = _summed(line) if real is None else _launched(line, real)
        overhead += own
        seen.append(DeviceObservation(device, tuple(times), np.array(list(times.values()))))
    return StepObservation(
        devices=tuple(seen),
        transfers=tuple(share_links(transfers, _made(host))),
        output_bytes=sizes.output_bytes,
        temp_bytes=sizes.temp_bytes,
        resident_bytes=sizes.resident_bytes,
        batch=sizes.batch,
        step_seconds=sizes.step_seconds,
        overhead_seconds=overhead,
        notes=tuple(notes),
    )


def _kernels(host: dict[str, _Line], stream: dict[str, _Line]) -> tuple[dict[str, dict[str, float]], float]:
    """Seconds of kernels by device and op, and of kernels of no op. A stream line has the number that CUDA knows the GPU by; the
    session may know it by another one (`visible_device_list`), or as several (`virtual_devices`): who started an op says where it
    ran.
    """
    where: dict[str, set[str]] = {}
    for device, line in host.items():
        if "/device:GPU" in device:
            for op in line.named():
                where.setdefault(op, set()).add(device)
    found: dict[str, dict[str, float]] = {}
    overhead = 0.0
    for device, line in stream.items():
        times, own = _summed(line)
        overhead += own
        for op, seconds in times.items():
            starters = where.get(op, set())
            at = found.setdefault(next(iter(starters)) if len(starters) == 1 else device, {})
            at[op] = at.get(op, 0.0) + seconds
    return found, overhead


def _made(host: dict[str, _Line]) -> dict[tuple[str, str], float]:
    """When each op on each device had made its outputs; those of loops, which made several, are left out."""
    made: dict[tuple[str, str], float] = {}
    for device, line in host.items():
        times = Counter(line.ops)
        made.update(((device, op), end) for op, end in zip(line.ops, line.end, strict=True) if op is not None and times[op] == 1)
    return made


def _launched(line: _Line, kernels: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """As `_summed`, of a GPU whose kernels were seen."""
    order = np.argsort(line.start, kind="stable")
    return device_seconds([line.ops[k] for k in order], _shared(line)[order], kernels)


def _shared(line: _Line) -> Float:
    """Seconds of each entry, overlaps shared out."""
    origin = min(line.start, default=0.0)
    return share_overlaps(np.array(line.start) - origin, np.array(line.end) - origin)


def _summed(line: _Line) -> tuple[dict[str, float], float]:
    """Seconds by op, iterations of loops summed and overlaps shared out; and what the runtime itself took."""
    times: dict[str, float] = {}
    overhead = 0.0
    for op, seconds in zip(line.ops, _shared(line).tolist(), strict=True):
        if op is None:
            overhead += seconds
        else:
            times[op] = times.get(op, 0.0) + seconds
    return times, overhead
