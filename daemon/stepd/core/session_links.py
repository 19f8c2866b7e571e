"""A live session's devices, and what moving tensors between them costs: the links of its planning problem.

Pure; knows neither graphs nor strategies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stepd.core.cost.communication import LinkCost, handling, prior
from stepd.core.cost.models import CostModels
from stepd.core.problem import Link


@dataclass(frozen=True)
class SessionDevice:
    """A device of a session. `usable` False: hosts only what is pinned there. memory_bytes 0: not known. Handling: seconds of its
    cores that a transfer to or from another process takes, and each byte of it, as measured; 0: not known.
    """

    name: str
    type: str
    memory_bytes: int
    usable: bool = True
    handling_seconds: float = 0.0
    handling_seconds_per_byte: float = 0.0


def link_costs(models: CostModels, devices: Sequence[str]) -> dict[tuple[str, str], LinkCost]:
    """What every directed device pair costs: measured; else like the pair the other way; else like other
    pairs that leave a task (or do not); else a prior.
    """
    model = models.communication
    known = {(a, b): model.fit(a, b, prior(a, b)) for a, b in model.pairs if a in devices and b in devices}
    result = {}
    for a in devices:
        for b in devices:
            if a == b:
                continue
            guess = prior(a, b)
            alike = [cost for pair, cost in known.items() if prior(*pair) == guess]
            if alike:
                guess = LinkCost(
                    float(np.median([cost.latency_seconds for cost in alike])),
                    float(np.median([cost.bytes_per_second for cost in alike])),
                )
            result[a, b] = known.get((a, b)) or known.get((b, a)) or guess
    return result


def links(devices: Sequence[SessionDevice], costs: Mapping[tuple[str, str], LinkCost]) -> list[Link]:
    """The links of a Problem over these devices; between CPUs of different processes with what transfers take of their cores."""
    index = {device.name: k for k, device in enumerate(devices)}
    cores = {device.name: device for device in devices if device.type == "CPU"}
    found = []
    for (a, b), cost in costs.items():
        each, per_byte = handling(a, b, _measured(cores[a], cores[b])) if a in cores and b in cores else (0.0, 0.0)
        # A traced transfer waits for both ends to handle it; what is left is the way itself.
        latency = max(cost.latency_seconds - 2 * each, 0.25 * cost.latency_seconds)
        found.append(Link(index[a], index[b], cost.bytes_per_second, latency, each, per_byte))
    return found


def _measured(a: SessionDevice, b: SessionDevice) -> tuple[float, float] | None:
    """What a transfer costs each of two devices, as told: their mean, since a link has one figure for both ends."""
    if not (a.handling_seconds_per_byte and b.handling_seconds_per_byte):
        return None
    each = (a.handling_seconds + b.handling_seconds) / 2
    return each, (a.handling_seconds_per_byte + b.handling_seconds_per_byte) / 2
