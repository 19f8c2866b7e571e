"""The same graph on other hardware: more or fewer devices, faster or slower ones, other links, other memory (Pesto, Figure 8)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from stepd.core.errors import ProblemError
from stepd.core.problem import Device, Link, Problem
from stepd.core.validation import MOST_BYTES

MOST_DEVICES = 256
"""Of a type, and of a workload: between any two there is a link, and planners try every op on every device."""


@dataclass(frozen=True)
class WhatIf:
    """Changes of a problem's hardware. Factors are of speed and of size: device_speed 2 halves every op's time.

    devices: how many there shall be of the type that most devices are of (0: as they are); the others stay.
    """

    devices: int = 0
    device_speed: float = 1.0
    link_speed: float = 1.0
    memory: float = 1.0


def apply_what_if(problem: Problem, change: WhatIf) -> Problem:
    """`problem` on the changed hardware. Raises ProblemError when a factor is not positive."""
    for name in ("device_speed", "link_speed", "memory"):
        factor = getattr(change, name)
        if not (np.isfinite(factor) and factor > 0):
            raise ProblemError(f"the what-if factor {name} is {factor}: it must be positive and finite")
    if change == WhatIf():
        return problem
    for device in problem.devices:
        if device.memory_bytes * change.memory > MOST_BYTES:
            raise ProblemError(
                f"the what-if factor memory is {change.memory:g}: device {device.name!r} would have more than {MOST_BYTES} bytes"
            )
    if change.devices:
        problem = with_devices(problem, change.devices)
    if change == WhatIf(devices=change.devices):
        return problem
    return replace(
        problem,
        devices=tuple(replace(d, memory_bytes=int(d.memory_bytes * change.memory)) for d in problem.devices),
        links=tuple(
            replace(
                k,
                bytes_per_second=k.bytes_per_second * change.link_speed,
                latency_seconds=k.latency_seconds / change.link_speed,
                handling_seconds=k.handling_seconds / change.device_speed,
                handling_seconds_per_byte=k.handling_seconds_per_byte / change.device_speed,
            )
            for k in problem.links
        ),
        seconds=problem.seconds / change.device_speed,
    )


def with_devices(problem: Problem, count: int) -> Problem:
    """`problem` with `count` devices of its most frequent type, and its others.

    Fewer: the first `count` stay. More: the devices are repeated in turn, each copy with its model's costs, memory and links; two
    copies of one device are joined by a link like the widest that leaves it.
    Raises ProblemError when `count` is less than 1 or more devices are asked of a machine without links.
    """
    if not 1 <= count <= MOST_DEVICES:
        raise ProblemError(f"the what-if number of devices is {count}: give 1 to {MOST_DEVICES}")
    kind = Counter(device.type for device in problem.devices).most_common(1)[0][0]
    alike = [k for k, device in enumerate(problem.devices) if device.type == kind]
    models = [alike[k % len(alike)] for k in range(count)] + [k for k, device in enumerate(problem.devices) if device.type != kind]
    user = problem.user_devices
    kept = np.array([models.index(k) if k in models else -1 for k in range(problem.n_devices)] + [-1], dtype=np.int32)
    return replace(
        problem,
        devices=_named_apart([problem.devices[k] for k in models]),
        links=_links(problem, models),
        seconds=problem.seconds[:, models].copy(),
        user_devices=None if user is None else kept[user],
    )


def _links(problem: Problem, models: list[int]) -> tuple[Link, ...]:
    between = {(link.src, link.dst): link for link in problem.links}
    links = []
    for a, x in enumerate(models):
        for b, y in enumerate(models):
            if a == b:
                continue
            leaving = [link for link in problem.links if link.src == x]
            if x == y and not leaving:
                raise ProblemError(
                    f"device {problem.devices[x].name!r} has no link, so nothing says how copies of it would be joined: add links"
                )
            like = between.get((x, y)) if x != y else max(leaving, key=lambda link: link.bytes_per_second)
            if like is not None:
                links.append(replace(like, src=a, dst=b))
    return tuple(links)


def _named_apart(devices: list[Device]) -> tuple[Device, ...]:
    """The devices; names that come again get a number."""
    seen: Counter[str] = Counter()
    named = []
    for device in devices:
        seen[device.name] += 1
        suffix = f"#{seen[device.name]}" if seen[device.name] > 1 else ""
        named.append(replace(device, name=device.name + suffix))
    return tuple(named)
