"""Tensors on their way between devices, as a trace has them: "RecvTensor" entries of hosts, copies on "memcpy" lines of GPUs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from stepd.core.cost.communication import GPU_HANDOVER
from stepd.core.cost.observation import Transfer, share_overlaps
from stepd.v1 import profile_pb2

_TRANSFER = re.compile(r"edge_\d+_(?P<op>\S*) from (?P<src>/\S+) to (?P<dst>/\S+)")
_COPIED = re.compile(r"^Memcpy(?P<way>H2D|D2H|D2D|P2P) .*\bsize:(?P<size>\d+) dest:(?P<dest>\d+)")


@dataclass(frozen=True)
class Sent:
    """A RecvTensor entry (it starts when its device began to send), or a copy of a GPU (`op` is empty). `besides`: seconds that
    pass without the link being at work.
    """

    src: str
    dst: str
    op: str
    size: int
    start: float
    end: float
    besides: float = 0.0


def received(stats: profile_pb2.NodeExecStats) -> Sent | None:
    found = _TRANSFER.search(stats.timeline_label)
    if not found or not stats.output:
        return None
    size = stats.output[0].tensor_description.allocation_description.requested_bytes
    return Sent(found["src"], found["dst"], found["op"], size, *interval(stats))


def copied(entry: profile_pb2.DeviceStepStats, kind: str, index: int, devices: Collection[str]) -> Iterator[Sent]:
    """Copies that CUPTI saw start on GPU `index` ("MemcpyP2P kind_src:.. kind_dst:.. size:BYTES dest:GPU async:.."). Whose tensor
    it was is not told. Copies within a GPU, and to what the session does not have, are no transfers.
    """
    gpu = canonical(f"{kind}{index}", devices)
    host = gpu[: gpu.rfind("/device:")] + "/device:CPU:0"
    for stats in entry.node_stats:
        found = _COPIED.match(stats.timeline_label)
        if not found or not int(found["size"]):
            continue
        peer = canonical(f"{kind}{found['dest']}", devices)
        src, dst = {"H2D": (host, gpu), "D2H": (gpu, host)}.get(found["way"], (gpu, peer))
        if src != dst and src in devices and dst in devices:
            yield Sent(src, dst, "", int(found["size"]), *interval(stats), besides=GPU_HANDOVER)


def share_links(transfers: list[Sent], made: Mapping[tuple[str, str], float]) -> Iterator[Transfer]:
    """What each transfer cost its link. A tensor is on its way from when it was made (`made`: end of an op on a device), not only
    from when its device found the time to send it. Those that were on their way at once shared the link: each is charged its share
    of the time, so that the times of a link add up to what it had something to deliver for.
    """
    by_link: dict[tuple[str, str], list[Sent]] = {}
    for transfer in transfers:
        by_link.setdefault((transfer.src, transfer.dst), []).append(transfer)
    for (src, dst), seen in by_link.items():
        origin = min(transfer.start for transfer in seen)
        waited = np.array([transfer.start - made.get((src, transfer.op), np.nan) for transfer in seen])
        if not np.isnan(waited).all():
            waited -= np.nanmin(waited)  # somebody is sent at once: what is left is how far the clocks of two hosts disagree
        start = np.array([transfer.start - origin for transfer in seen]) - np.nan_to_num(waited)
        end = np.array([transfer.end - origin for transfer in seen])
        for transfer, seconds in zip(seen, share_overlaps(start, end).tolist(), strict=True):
            yield Transfer(src, dst, transfer.op, transfer.size, seconds + transfer.besides)


def interval(stats: profile_pb2.NodeExecStats) -> tuple[float, float]:
    """Start and end of the op's own work, seconds."""
    if stats.all_start_nanos:
        begin = stats.all_start_nanos + stats.op_start_rel_nanos
        end = stats.all_start_nanos + (stats.op_end_rel_nanos or stats.all_end_rel_nanos)
        return begin * 1e-9, max(begin, end) * 1e-9
    begin = stats.all_start_micros + stats.op_start_rel_micros
    end = stats.all_start_micros + (stats.op_end_rel_micros or stats.all_end_rel_micros)
    return begin * 1e-6, max(begin, end) * 1e-6


def canonical(device: str, devices: Collection[str]) -> str:
    """The session's name of a device that a stream line names ("/device:GPU:0" alone, or in full, in either
    case).
    """
    if device in devices:
        return device
    tail = device[device.lower().rfind("/device:") :].lower()
    matches = [name for name in devices if name.lower().endswith(tail)]
    return matches[0] if len(matches) == 1 else device
