"""A list schedule of one step: when each op would begin and end if the strategy's priorities were kept. Pure.

Transfers take no time here: what matters is which ops of a device wait for it at the same time.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Pool:
    """Devices whose ops share `lanes` places to run."""

    name: str
    lanes: int


@dataclass(frozen=True)
class Schedule:
    """Seconds by op, from the start of the step. `before`: what ran last in the place that an op was given."""

    ready: Mapping[str, float]
    start: Mapping[str, float]
    finish: Mapping[str, float]
    before: Mapping[str, str]


def schedule(
    needed: Mapping[str, Sequence[str]],
    pool_of: Mapping[str, Pool],
    seconds: Mapping[str, float],
    priority: Mapping[str, int],
) -> Schedule:
    """Ops without seconds take no time and no place; among the others of a pool the lowest priority that is ready goes first."""
    users: dict[str, list[str]] = {name: [] for name in needed}
    left: dict[str, int] = {}
    for name, sources in needed.items():
        left[name] = len(sources)
        for source in sources:
            users[source].append(name)
    numbers = {name: i for i, name in enumerate(needed)}
    ready: dict[str, float] = {}
    start: dict[str, float] = {}
    finish: dict[str, float] = {}
    before: dict[str, str] = {}
    waiting: dict[str, list[tuple[int, int, str]]] = {}
    free: dict[str, list[str]] = {}  # by pool: what ran last in each free place, the latest last
    running: list[tuple[float, int, str]] = []

    def arrive(first: str, now: float) -> None:
        stack = [first]
        while stack:
            name = stack.pop()
            ready[name] = now
            if seconds.get(name, 0.0) > 0.0:
                heapq.heappush(waiting.setdefault(pool_of[name].name, []), (priority.get(name, -1), numbers[name], name))
                continue
            start[name] = finish[name] = now
            stack += released(name)

    def released(name: str) -> list[str]:
        found = []
        for user in users[name]:
            left[user] -= 1
            if not left[user]:
                found.append(user)
        return found

    def begin(now: float) -> None:
        for pool, queue in waiting.items():
            while queue:
                places = free.get(pool)
                if places is None:
                    places = free[pool] = [""] * pool_of[queue[0][2]].lanes
                if not places:
                    break
                name = heapq.heappop(queue)[2]
                last = places.pop()
                if last:
                    before[name] = last
                start[name], finish[name] = now, now + seconds[name]
                heapq.heappush(running, (finish[name], numbers[name], name))

    for name in [name for name, count in left.items() if not count]:
        arrive(name, 0.0)
    begin(0.0)
    while running:
        now = running[0][0]
        while running and running[0][0] == now:
            name = heapq.heappop(running)[2]
            free[pool_of[name].name].append(name)
            for user in released(name):
                arrive(user, now)
        begin(now)
    return Schedule(ready, start, finish, before)
