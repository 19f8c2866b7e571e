"""Devices that a lower bound need not tell apart, and the cheapest link between two of them.

It knows no bound.
"""

from __future__ import annotations

import numpy as np

from stepd.core.prepared import Tables
from stepd.core.problem import Float, Int

MOST_KINDS = 32
"""Kinds of devices up to which bounds look at pairs of them: the work grows with their square."""


def kinds_of(seconds: Float, memory: Int) -> tuple[Int, Int]:
    """Devices that take as long for everything and hold as much are of a kind: the kind of each, and a device of each kind.

    seconds: [n, d], inf where an op cannot run; memory: [d] bytes.
    """
    first: dict[tuple[bytes, int], int] = {}
    keys = [(seconds[:, device].tobytes(), int(memory[device])) for device in range(len(memory))]
    for device, key in enumerate(keys):
        first.setdefault(key, device)
    number = {key: k for k, key in enumerate(first)}
    return np.array([number[key] for key in keys]), np.array(list(first.values()))


def cheapest_links(tables: Tables, kind: Int, kinds: int) -> tuple[Float, Float]:
    """Least seconds, and least seconds a byte, from a device of one kind to another device of one: [kinds, kinds]. Where there is
    none inf seconds, and no more for bytes: inf times no bytes would be nan."""
    latency = _least(tables.latency, kind, kinds)
    return latency, np.where(latency == np.inf, 0.0, _least(1.0 / tables.bandwidth, kind, kinds))


def _least(costs: Float, kind: Int, kinds: int) -> Float:
    """The least of `costs` [d, d] between different devices of these kinds; inf where there are none."""
    least = np.full((kinds, kinds), np.inf)
    apart = ~np.eye(len(kind), dtype=bool)
    one, other = np.nonzero(apart)
    np.minimum.at(least, (kind[one], kind[other]), costs[one, other])
    return least
