"""What one profiled step showed, as a value, and how overlapping op times are shared out.

Whoever parses a trace makes a StepObservation; the cost models consume it. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from stepd.core.problem import Float


@dataclass(frozen=True, eq=False)
class DeviceObservation:
    """Ops that ran on one device in one step; an op of a loop body appears once with its iterations summed.

    seconds: float64 [n], time during which the device worked for the op (see `share_overlaps`).
    """

    device: str
    ops: tuple[str, ...]
    seconds: Float


@dataclass(frozen=True)
class Transfer:
    """One tensor that went from device `src` to device `dst`; `op` made it ("": not known)."""

    src: str
    dst: str
    op: str
    bytes: int
    seconds: float


@dataclass(frozen=True, eq=False)
class StepObservation:
    """One profiled step. `batch`: the leading dimension of the feeds (0: not known). `overhead_seconds`:
    device time of what belongs to no op of the user's graph. `output_bytes`: per op, by output slot.
    """

    devices: tuple[DeviceObservation, ...]
    transfers: tuple[Transfer, ...] = ()
    output_bytes: dict[str, dict[int, int]] = field(default_factory=dict)
    temp_bytes: dict[str, int] = field(default_factory=dict)
    resident_bytes: dict[str, int] = field(default_factory=dict)
    batch: int = 0
    step_seconds: float = 0.0
    overhead_seconds: float = 0.0
    notes: tuple[str, ...] = ()


class InParts(NamedTuple):
    """How an op was split: on which axis, and the share of it that ran on each device ("" for the op's own)."""

    axis: str
    share: Mapping[str, float]


def as_part(op: str, axis: str) -> str:
    """The name under which goes what parts of an op on an axis have shown; no op has a "|" in its name."""
    return f"{op}|{axis}"


def of_part(name: str) -> tuple[str, str] | None:
    """(op, axis) of such a name; None for an op's own."""
    op, is_part, axis = name.partition("|")
    return (op, axis) if is_part else None


def of_whole_ops(step: StepObservation, split: Mapping[str, InParts]) -> StepObservation:
    """What a step with split ops says of the whole ops: a part that did a third of the work took a third of the time.

    split: the ops that were; what they show goes by `as_part`. Their sizes are left out: they are of parts.
    """
    if not split:
        return step
    devices = []
    for seen in step.devices:
        own = [split[op].share if op in split else {"": 1.0} for op in seen.ops]
        share = np.array([known.get(seen.device, known.get("", 0.0)) for known in own])
        kept = np.flatnonzero(share > 0.0)  # what remains only joined there, or was cut
        names = [as_part(op, split[op].axis) if op in split else op for op in seen.ops]
        devices.append(DeviceObservation(seen.device, tuple(names[k] for k in kept), seen.seconds[kept] / share[kept]))
    return replace(
        step,
        devices=tuple(devices),
        output_bytes={op: sizes for op, sizes in step.output_bytes.items() if op not in split},
        temp_bytes={op: size for op, size in step.temp_bytes.items() if op not in split},
    )


def share_overlaps(start: Float, end: Float) -> Float:
    """Share the time of a device among the ops that were running: at an instant with k running ops, each
    gets 1/k of it.

    start, end: float64 [n], seconds. Returns float64 [n] whose sum is the time during which the device was
    busy at all. The execution model runs one op at a time (PROBLEM_FORMAT, rule 1); a device with two
    executor threads on one core runs two ops at half speed, and only the shared times add up to what the
    step took.
    """
    n = len(start)
    if n == 0:
        return np.zeros(0)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    instants = times[order]
    running = np.cumsum(np.where(order < n, 1, -1))
    gaps = np.diff(instants)
    # progress[k]: what one op that runs from the first instant to instants[k] would get.
    progress = np.concatenate([[0.0], np.cumsum(gaps / np.maximum(running[:-1], 1))])
    position = np.searchsorted(instants, np.concatenate([start, end]), side="left")
    result: Float = np.maximum(progress[position[n:]] - progress[position[:n]], 0.0)
    return result
