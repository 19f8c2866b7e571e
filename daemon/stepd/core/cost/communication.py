"""Communication cost model: transfer time by (source, destination) as a line over size, learned online.

Source: FastT, section 4 (linear regression of time on size per device pair). Sizes and times stay pairs:
sorting them apart, as FastT's published code does, gives slopes that are 1.9x too high. scikit-learn is
imported when a fit is asked for, not before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepd.core.problem import Float

MAX_SAMPLES = 1024
"""Transfers kept per device pair, the newest."""

OUTLIER = 3.0
"""A transfer that took longer than this many times its fit counts as that many."""

MIN_SPREAD = 4.0
"""Below this ratio of largest to smallest size the slope cannot be told from noise."""


@dataclass(frozen=True)
class LinkCost:
    """time = latency_seconds + bytes / bytes_per_second. `samples` 0: a prior."""

    latency_seconds: float
    bytes_per_second: float
    samples: int = 0
    r2: float = float("nan")

    def seconds(self, size: float) -> float:
        return self.latency_seconds + size / self.bytes_per_second


GPU_HANDOVER = 5e-5
"""Seconds of a transfer from or to a GPU beside the copy itself, which alone is traced: until it begins, and until the thread that
polls for its end has told the executor that waits for it. 37 to 145 us, mostly 45 to 75, while CUPTI watched
(docs/measurements/gpus.md).
"""

SAME_PROCESS = LinkCost(5e-6, 10e9)
HOST_AND_GPU = LinkCost(GPU_HANDOVER, 10e9)
GPU_AND_GPU = LinkCost(GPU_HANDOVER, 20e9)
OTHER_TASK = LinkCost(4.5e-4, 1e9)
"""Priors for pairs that were never measured: a little better than usual, so that trying them is not ruled
out unseen.
"""


def prior(src: str, dst: str) -> LinkCost:
    """What to assume of a device pair that was never measured. Device names are full TensorFlow names."""
    if _task(src) != _task(dst):
        return OTHER_TASK
    return (SAME_PROCESS, HOST_AND_GPU, GPU_AND_GPU)[("/device:GPU:" in src) + ("/device:GPU:" in dst)]


HANDLING = (5.0e-5, 0.8e-9)
"""Seconds of a host's cores per transfer to or from another process, and per byte of it: copies, system calls.

Traces do not show it. Without it, placements that send much are predicted up to a fifth too fast. Fitted to seven strategies that
were measured by turns (figures in docs/measurements/main-job.md), on one machine: local devices measure it, which is better. What
strategies measure corrects it (`calibration.calibrate`).
"""


def handling(src: str, dst: str, measured: tuple[float, float] | None = None) -> tuple[float, float]:
    """Of a pair of CPU devices: seconds per transfer, seconds per byte; what was measured, else HANDLING."""
    return (0.0, 0.0) if _task(src) == _task(dst) else measured or HANDLING


def _task(device: str) -> str:
    return device.rsplit("/device:", 1)[0]


class CommunicationModel:
    """Samples (bytes, seconds) by device pair and their fits."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def observe(self, src: str, dst: str, size: int, seconds: float) -> None:
        samples = self._samples.setdefault((src, dst), [])
        samples.append((float(size), seconds))
        if len(samples) > MAX_SAMPLES:
            del samples[: len(samples) - MAX_SAMPLES]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(self._samples)

    def fit(self, src: str, dst: str, fallback: LinkCost) -> LinkCost:
        """The pair's cost; `fallback` where nothing was measured, and for the slope where sizes are all
        alike.
        """
        samples = self._samples.get((src, dst))
        return fit_line(np.array(samples), fallback) if samples else fallback

    def summary(self) -> dict[tuple[str, str], float]:
        """A cheap figure per pair to see change by: the median of seconds per (byte + 64 KiB)."""
        return {
            pair: float(np.median([seconds / (size + 65536.0) for size, seconds in samples]))
            for pair, samples in self._samples.items()
        }

    def to_state(self) -> list[dict[str, Any]]:
        return [{"src": s, "dst": d, "samples": np.array(v)} for (s, d), v in self._samples.items()]

    @classmethod
    def from_state(cls, state: Sequence[Mapping[str, Any]]) -> CommunicationModel:
        """Rebuild what `to_state` gave."""
        model = cls()
        for part in state:
            pairs = [(float(size), float(seconds)) for size, seconds in part["samples"]]
            model._samples[str(part["src"]), str(part["dst"])] = pairs
        return model


def fit_line(samples: Float, fallback: LinkCost) -> LinkCost:
    """Robust line through (bytes, seconds) pairs, float64 [n, 2]: intercept >= 0, slope > 0.

    Each size counts by the median of its times, so that one transfer that waited does not tilt the line;
    residuals are relative, since a byte more matters as much for small tensors as for large; points beyond
    3 deviations are dropped once.
    """
    from sklearn.linear_model import LinearRegression

    sizes, times, weights = _medians_by_size(samples)
    positive = sizes[sizes > 0]
    if len(positive) < 3 or positive.max() < MIN_SPREAD * positive.min():
        latency = float(np.median(np.maximum(samples[:, 1] - samples[:, 0] / fallback.bytes_per_second, 0.0)))
        return LinkCost(latency, fallback.bytes_per_second, len(samples))
    keep = np.ones(len(sizes), dtype=bool)
    for _ in range(2):
        model = LinearRegression(positive=True, fit_intercept=False)
        columns = np.column_stack([sizes, np.ones_like(sizes)])[keep]
        relative = weights[keep] / np.maximum(times[keep], 1e-7) ** 2
        model.fit(columns * np.array([1e-9, 1.0]), times[keep], sample_weight=relative)
        slope, latency = float(model.coef_[0]) * 1e-9, float(model.coef_[1])
        residual = (times - latency - slope * sizes) / np.maximum(times, 1e-7)
        spread = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
        keep = np.abs(residual - np.median(residual)) <= max(3 * spread, 0.05)
    if slope <= 0:
        return LinkCost(float(np.median(times)), fallback.bytes_per_second, len(samples))
    # The line goes through medians; what steps pay is the mean, and waiting for a busy host only ever adds.
    fitted = np.maximum(latency + slope * samples[:, 0], 1e-9)
    scale = float(np.minimum(samples[:, 1] / fitted, OUTLIER).mean())
    r2 = _r2(times, latency + slope * sizes, weights)
    return LinkCost(latency * scale, 1.0 / (slope * scale), len(samples), r2)


def _medians_by_size(samples: Float) -> tuple[Float, Float, Float]:
    """(size, median seconds, count) with sizes within 10 % of each other taken together."""
    bins = np.where(samples[:, 0] > 0, np.round(np.log(np.maximum(samples[:, 0], 1.0)) / np.log(1.1)), -1.0)
    rows = [samples[bins == value] for value in np.unique(bins)]
    return (
        np.array([np.median(row[:, 0]) for row in rows]),
        np.array([np.median(row[:, 1]) for row in rows]),
        np.array([float(len(row)) for row in rows]),
    )


def _r2(times: Float, fitted: Float, weights: Float) -> float:
    total = float((weights * (times - np.average(times, weights=weights)) ** 2).sum())
    return 1.0 - float((weights * (times - fitted) ** 2).sum()) / total if total > 0 else float("nan")
