"""Computation cost model: time of an op on a device, learned online, estimated where it never ran.

Source: FastT, section 4 ("computation cost model", key: op and device); robust medians instead of means.
Where FastT explores with a cost of 0, an estimate from the same op on similar devices is used: it is
closer, and still a guess that profiling replaces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepd.core.cost.observation import DeviceObservation, of_part
from stepd.core.cost.pace import at_present_pace
from stepd.core.cost.pooling import pool
from stepd.core.cost.window import WIDTH, WindowTable
from stepd.core.problem import Float

MAX_BATCHES = 8
"""Batch sizes remembered per device; the least recently seen goes first."""

PRIOR_SPEED = {"CPU": 1.0, "GPU": 20.0, "TPU": 40.0}
"""Relative speed by device type when no op ran on both types; only steers the first exploration."""


NOISE = 0.1
"""Relative standard deviation of an op's time that is assumed before any was seen."""


class ComputationModel:
    """Windows of op times by (device, batch size)."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], WindowTable] = {}

    def observe(self, seen: DeviceObservation, batch: int, step: int) -> None:
        """Learn what a device showed in step `step` (they count upwards)."""
        if not seen.ops:
            return
        key = (seen.device, batch)
        table = self._tables.pop(key, None) or WindowTable()
        self._tables[key] = table  # moved to the end: most recently seen
        table.observe(seen.ops, seen.seconds, step)
        mine = [other for other in self._tables if other[0] == seen.device]
        for stale in mine[: len(mine) - MAX_BATCHES]:
            del self._tables[stale]

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(device for device, _ in self._tables))

    def names(self) -> set[str]:
        """Ops that ran somewhere, and parts (`observation.as_part`)."""
        return {name for table in self._tables.values() for name in table.names}

    def ops(self) -> set[str]:
        """Ops that ran somewhere, whole or in parts."""
        return {part[0] if (part := of_part(name)) is not None else name for name in self.names()}

    def samples(self, device: str, batch: int) -> dict[str, int]:
        """How many samples at exactly this batch size each op's time rests on."""
        table = self._tables.get((device, batch))
        return dict(zip(table.names, np.minimum(table.counts, WIDTH).tolist(), strict=True)) if table else {}

    def noise(self, batch: int) -> float:
        """Relative standard deviation of one sample at this batch size, the median over devices; NOISE where nothing was seen."""
        seen = [at_present_pace(table.values, table.steps)[1] for (_, size), table in self._tables.items() if size == batch]
        return float(np.median(seen)) if seen else NOISE

    def at_batch(self, device: str, batch: int) -> dict[str, float]:
        """Seconds of each op on a device, at its present pace, at a batch size: measured, else by regression of time on batch
        size.

        With one other batch size known, an op's time beyond the smallest of its device is taken as
        proportional to the batch.
        """
        known = {size: _present(table) for (name, size), table in self._tables.items() if name == device}
        result: dict[str, float] = dict(known.get(batch, {}))
        others = {size: times for size, times in known.items() if size != batch}
        missing = {op for times in others.values() for op in times} - set(result)
        if not missing:
            return result
        floor = min((value for times in others.values() for value in times.values() if value > 0), default=0.0)
        for op in missing:
            points = [(size, times[op]) for size, times in others.items() if op in times]
            result[op] = _extrapolate(points, batch, floor)
        return result

    def snapshot(self) -> dict[tuple[str, int], dict[str, float]]:
        return {key: table.as_mapping() for key, table in self._tables.items()}

    def to_state(self) -> list[dict[str, Any]]:
        return [{"device": device, "batch": batch, **table.to_state()} for (device, batch), table in self._tables.items()]

    @classmethod
    def from_state(cls, state: Sequence[Mapping[str, Any]]) -> ComputationModel:
        """Rebuild what `to_state` gave."""
        model = cls()
        for part in state:
            model._tables[str(part["device"]), int(part["batch"])] = WindowTable.from_state(part)
        return model


def _present(table: WindowTable) -> dict[str, float]:
    seconds, _ = at_present_pace(table.values, table.steps)
    return dict(zip(table.names, seconds.tolist(), strict=True))


def _extrapolate(points: Sequence[tuple[int, float]], batch: int, floor: float) -> float:
    """Time at `batch` from (batch size, seconds) points: a non-negative line through them."""
    if len(points) == 1 or batch <= 0:
        size, seconds = points[-1]
        if size <= 0 or batch <= 0:
            return seconds
        fixed = min(seconds, floor)
        return fixed + (seconds - fixed) * batch / size
    sizes = np.array([size for size, _ in points], dtype=np.float64)
    times = np.array([seconds for _, seconds in points])
    centred = sizes - sizes.mean()
    slope = max(float((centred * (times - times.mean())).sum() / (centred**2).sum()), 0.0)
    intercept = max(float(times.mean() - slope * sizes.mean()), 0.0)
    return intercept + slope * batch


def estimate_seconds(
    model: ComputationModel,
    ops: Sequence[str],
    types: Sequence[str],
    devices: Sequence[tuple[str, str]],
    batch: int,
) -> Float:
    """Seconds of every op on every device, float64 [n, d]; `devices` are (name, type).

    Measured there and on devices of the same type (times the two devices' speed ratio), whatever of these is known, each as far
    as it can be trusted (`pooling`); else on devices of another type, times the ratio of that op type between the device types, or
    of the devices as a whole, or PRIOR_SPEED. An op that ran nowhere costs 0: the runtime optimised it away.
    """
    known = {name: model.at_batch(name, batch) for name, _ in devices}
    samples = {name: model.samples(name, batch) for name, _ in devices}
    columns = np.full((len(ops), len(devices)), np.nan)
    counts = np.ones((len(ops), len(devices)))
    for j, (name, _) in enumerate(devices):
        columns[:, j] = [known[name].get(op, np.nan) for op in ops]
        counts[:, j] = [samples[name].get(op, 1) for op in ops]
    kinds = [kind for _, kind in devices]
    op_types = np.asarray(types)
    result = pool(columns, counts, model.noise(batch), kinds)
    # Beyond like devices: unlike ones that ran some of the same ops; then what that gave for like devices; then the prior.
    for alike, source, measured_ratio in ((False, columns, True), (True, result, False), (False, columns, False)):
        for j, kind in enumerate(kinds):
            for k, other in enumerate(kinds):
                if k == j or (kind == other) != alike or (measured_ratio and not _both(columns, j, k).any()):
                    continue
                guess = source[:, k] * _ratio(columns, op_types, j, k, other, kind)
                fill = np.isnan(result[:, j])
                result[fill, j] = guess[fill]
    filled: Float = np.nan_to_num(result, nan=0.0)
    return filled


def _both(columns: Float, one: int, other: int) -> npt.NDArray[np.bool_]:
    """Ops that were measured on both devices."""
    both: npt.NDArray[np.bool_] = ~np.isnan(columns[:, one]) & ~np.isnan(columns[:, other]) & (columns[:, other] > 0)
    return both


def _ratio(columns: Float, types: npt.NDArray[np.str_], to: int, source: int, from_kind: str, to_kind: str) -> Float:
    """Factor per op, float64 [n], from its time on device `source` to its time on device `to`."""
    both = _both(columns, to, source)
    prior = 1.0 if from_kind == to_kind else PRIOR_SPEED.get(from_kind, 1.0) / PRIOR_SPEED.get(to_kind, 1.0)
    factor = np.full(len(types), prior)
    if both.any():
        # Sums, not medians of ratios: tiny ops are mostly noise and the large ones decide the step.
        factor[:] = columns[both, to].sum() / columns[both, source].sum()
        for op_type in set(types[both].tolist()) if from_kind != to_kind else ():
            rows = both & (types == op_type)
            factor[types == op_type] = columns[rows, to].sum() / columns[rows, source].sum()
    return factor
