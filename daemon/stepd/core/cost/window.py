"""Bounded windows of samples per op, as columns, each stamped with the step it is from: robust statistics over the last few
steps at a fixed memory cost.

Knows ops only by name and values only as floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH = 16
"""Samples kept per op: enough for a median that ignores a few bad steps, few enough to follow drift."""


class WindowTable:
    """The last `width` samples of each named op. Memory: 8 * width bytes an op."""

    def __init__(self, width: int = WIDTH) -> None:
        self._row: dict[str, int] = {}
        self._values = np.full((64, width), np.nan, dtype=np.float32)
        self._steps = np.full((64, width), -1, dtype=np.int32)
        self._counts = np.zeros(64, dtype=np.int64)

    def observe(self, names: Sequence[str], values: npt.NDArray[np.float64], step: int) -> None:
        """Add one sample per name (names are unique within a call; values float64 [len(names)], >= 0), seen in step `step`."""
        rows = np.fromiter((self._row_of(name) for name in names), dtype=np.int64, count=len(names))
        slots = self._counts[rows] % self._values.shape[1]
        self._values[rows, slots] = values
        self._steps[rows, slots] = step
        self._counts[rows] += 1

    def _row_of(self, name: str) -> int:
        row = self._row.get(name)
        if row is None:
            row = self._row[name] = len(self._row)
            if row == len(self._counts):
                self._values = np.concatenate([self._values, np.full_like(self._values, np.nan)])
                self._steps = np.concatenate([self._steps, np.full_like(self._steps, -1)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        return row

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._row)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """int64 [n]: samples ever seen per op."""
        return self._counts[: len(self._row)]

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """float64 [n, width]: the samples; nan where there is none yet."""
        return self._values[: len(self._row)].astype(np.float64)

    @property
    def steps(self) -> npt.NDArray[np.int32]:
        """int32 [n, width]: the step that each sample is from; -1 where there is none yet."""
        return self._steps[: len(self._row)]

    def medians(self) -> npt.NDArray[np.float64]:
        """float64 [n], in the order of `names`."""
        if not self._row:
            return np.zeros(0)
        result: npt.NDArray[np.float64] = np.nanmedian(self._values[: len(self._row)], axis=1).astype(np.float64)
        return result

    def as_mapping(self) -> dict[str, float]:
        """Median of every op by name."""
        return dict(zip(self._row, self.medians().tolist(), strict=True))

    def to_state(self) -> dict[str, Any]:
        n = len(self._row)
        return {
            "names": list(self._row),
            "values": self._values[:n].copy(),
            "steps": self._steps[:n].copy(),
            "counts": self._counts[:n].copy(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> WindowTable:
        """Rebuild what `to_state` gave."""
        values = np.array(state["values"], dtype=np.float32)
        table = cls(values.shape[1] if values.ndim == 2 and values.shape[1] else WIDTH)
        table._row = {name: row for row, name in enumerate(state["names"])}
        if len(table._row):
            table._values = values
            table._steps = np.array(state["steps"], dtype=np.int32)
            table._counts = np.array(state["counts"], dtype=np.int64)
        return table
