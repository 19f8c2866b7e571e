"""Binary heaps in arrays, for kernels: of integer keys, and of times with a payload (ties: the smaller payload first)."""

from __future__ import annotations

from typing import Any

from stepd.core.compiled import inlined
from stepd.core.problem import Float, Index


@inlined
def push(keys: Any, base: int, size: int, key: int) -> None:
    """Add `key` to the heap of `size` keys that starts at keys[base]."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if keys[base + parent] <= key:
            break
        keys[base + at] = keys[base + parent]
        at = parent
    keys[base + at] = key


@inlined
def pop(keys: Any, base: int, size: int) -> int:
    """Take the smallest key out of the heap of `size` keys that starts at keys[base]."""
    top = keys[base]
    last = keys[base + size - 1]
    size -= 1
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and keys[base + child + 1] < keys[base + child]:
            child += 1
        if keys[base + child] >= last:
            break
        keys[base + at] = keys[base + child]
        at = child
    if size > 0:
        keys[base + at] = last
    return top  # type: ignore[no-any-return]


@inlined
def push_timed(times: Float, items: Index, size: int, time: float, item: int) -> None:
    """Add (time, item) to a heap of `size` entries."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if times[parent] < time or (times[parent] == time and items[parent] < item):
            break
        times[at] = times[parent]
        items[at] = items[parent]
        at = parent
    times[at] = time
    items[at] = item


@inlined
def pop_timed(times: Float, items: Index, size: int) -> int:
    """Take the earliest entry out of a heap of `size` entries; returns its item."""
    top = items[0]
    size -= 1
    time, item = times[size], items[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (times[right] < times[child] or (times[right] == times[child] and items[right] < items[child])):
            child = right
        if time < times[child] or (time == times[child] and item < items[child]):
            break
        times[at] = times[child]
        items[at] = items[child]
        at = child
    if size > 0:
        times[at] = time
        items[at] = item
    return top  # type: ignore[no-any-return]
