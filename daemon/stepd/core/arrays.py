"""Whole arrays in kernels, as loops: copying, adding, sorting.

What numpy offers for these takes numba longer to compile than the kernels that use it: checked shapes bring in its strings, sorting
three more functions, for every kernel anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepd.core.compiled import inlined, inner
from stepd.core.problem import Float, Index

RUN = 16
"""Stretches so long are sorted by insertion."""


@inlined
def copy_to(target: Any, source: Any) -> None:
    """Fill `target` from `source`, which is as long."""
    for k in range(len(source)):
        target[k] = source[k]


@inlined
def add_to(target: Float, source: Float) -> None:
    """Add `source`, which is as long, to `target`."""
    for k in range(len(source)):
        target[k] += source[k]


@inlined
def largest(values: Float) -> float:
    """The largest value, -inf of none."""
    most = -np.inf
    for value in values:
        most = max(most, value)
    return most


@inlined
def first_above(values: Float, limit: float) -> int:
    """Where the first of the ascending `values` above `limit` is; the last place when none is."""
    at = 0
    while at < len(values) - 1 and values[at] <= limit:
        at += 1
    return at


@inner
def sort_by(keys: Float, order: Index, scratch: Index) -> None:
    """Sort `order`, places in `keys`, by ascending keys; equal ones stay as they are. scratch: as long as `order`."""
    n = len(order)
    for first in range(0, n, RUN):
        for at in range(first + 1, min(first + RUN, n)):
            item = order[at]
            key = keys[item]
            to = at
            while to > first and keys[order[to - 1]] > key:
                order[to] = order[to - 1]
                to -= 1
            order[to] = item
    width = RUN
    while width < n:
        for first in range(0, n - width, 2 * width):
            middle, last = first + width, min(first + 2 * width, n)
            if keys[order[middle - 1]] <= keys[order[middle]]:
                continue  # already in order
            for k in range(first, middle):
                scratch[k] = order[k]
            left, right, to = first, middle, first
            while left < middle and right < last:
                if keys[order[right]] < keys[scratch[left]]:
                    order[to] = order[right]
                    right += 1
                else:
                    order[to] = scratch[left]
                    left += 1
                to += 1
            while left < middle:
                order[to] = scratch[left]
                left += 1
                to += 1
        width *= 2
