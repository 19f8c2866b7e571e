"""Sizes and memory by op: output bytes, scratch bytes and resident bytes, by batch size.

Source: Celeritas, section 4 (memory of an op over the batch size is a line).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MAX_BATCHES = 8


class SizeModel:
    """Bytes by op (and output slot) and batch size. Sizes are deterministic, so the last seen value stands."""

    def __init__(self) -> None:
        self._by_batch: dict[int, dict[str, int]] = {}

    def observe(self, sizes: Mapping[str, int], batch: int) -> None:
        known = self._by_batch.pop(batch, {})
        known.update(sizes)
        self._by_batch[batch] = known
        while len(self._by_batch) > MAX_BATCHES:
            del self._by_batch[next(iter(self._by_batch))]

    def at_batch(self, batch: int) -> dict[str, int]:
        """Bytes by key at a batch size: measured, else on the line through the two nearest known sizes,
        else the last known.
        """
        result = dict(self._by_batch.get(batch, {}))
        others = [size for size in self._by_batch if size != batch]
        if not others or (result and len(result) >= max(len(self._by_batch[size]) for size in others)):
            return result
        nearest = sorted(others, key=lambda size: abs(size - batch))[:2]
        for key in {key for size in others for key in self._by_batch[size]} - set(result):
            points = [(size, self._by_batch[size][key]) for size in nearest if key in self._by_batch[size]]
            result[key] = _on_line(points, batch) if points else self._last(key)
        return result

    def _last(self, key: str) -> int:
        return next(known[key] for known in reversed(self._by_batch.values()) if key in known)

    def to_state(self) -> list[dict[str, Any]]:
        return [{"batch": batch, "sizes": dict(known)} for batch, known in self._by_batch.items()]

    @classmethod
    def from_state(cls, state: Sequence[Mapping[str, Any]]) -> SizeModel:
        """Rebuild what `to_state` gave."""
        model = cls()
        for part in state:
            model._by_batch[int(part["batch"])] = {str(k): int(v) for k, v in part["sizes"].items()}
        return model


def _on_line(points: Sequence[tuple[int, int]], batch: int) -> int:
    """Bytes at `batch` on the line through one or two (batch, bytes) points; one point that the batch
    divides is proportional.
    """
    (size, seen), *rest = points
    if rest:
        other, there = rest[0]
        return max(0, round(seen + (there - seen) * (batch - size) / (other - size)))
    if batch > 0 and size > 0 and seen % size == 0:
        return seen // size * batch
    return seen
