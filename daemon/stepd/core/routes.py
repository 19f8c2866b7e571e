"""Which links a transfer between two devices occupies (PROBLEM_FORMAT, "links"; Moirai section 4.2's multi-hop channels).

A pair with a link of its own uses it. A pair without one uses the path of present links with the largest bottleneck
bandwidth; among equally wide ones that with the fewest hops; among those the one whose device indices come first.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from stepd.core.problem import Link


@dataclass(frozen=True)
class Route:
    """The way from one device to another: indices into Problem.links in travel order, and what they amount to."""

    links: tuple[int, ...]
    latency_seconds: float
    bytes_per_second: float
    handling_seconds: float  # of the devices at both ends; those between pass on for nothing
    handling_seconds_per_byte: float


def find_routes(n_devices: int, links: tuple[Link, ...]) -> dict[tuple[int, int], Route]:
    """The route of every ordered pair of distinct devices that is connected at all."""
    direct = {(link.src, link.dst): k for k, link in enumerate(links)}
    neighbours: list[list[int]] = [[] for _ in range(n_devices)]
    for src, dst in sorted(direct):
        neighbours[src].append(dst)
    widths = sorted({link.bytes_per_second for link in links}, reverse=True)
    routes = {}
    for src in range(n_devices):
        paths: dict[int, tuple[int, ...]] = {dst: (src, dst) for dst in neighbours[src]}
        for width in widths:  # the first that connects a pair is the bottleneck of its best path
            if len(paths) == n_devices - 1:
                break
            for dst, path in _first_shortest_paths(src, width, neighbours, direct, links).items():
                paths.setdefault(dst, path)
        for dst in sorted(paths):
            routes[src, dst] = _route(paths[dst], direct, links)
    return routes


def _route(path: tuple[int, ...], direct: dict[tuple[int, int], int], links: tuple[Link, ...]) -> Route:
    used = tuple(direct[hop] for hop in itertools.pairwise(path))
    return Route(
        links=used,
        latency_seconds=sum(links[k].latency_seconds for k in used),
        bytes_per_second=min(links[k].bytes_per_second for k in used),
        handling_seconds=max(links[k].handling_seconds for k in used),
        handling_seconds_per_byte=max(links[k].handling_seconds_per_byte for k in used),
    )


def _first_shortest_paths(
    src: int,
    width: float,
    neighbours: list[list[int]],
    direct: dict[tuple[int, int], int],
    links: tuple[Link, ...],
) -> dict[int, tuple[int, ...]]:
    """To every device that links at least `width` wide lead to, breadth first.

    Paths of one level are extended in lexicographic order, smallest neighbour first, so that the first path to reach a device
    is the lexicographically smallest of the shortest ones.
    """
    found: dict[int, tuple[int, ...]] = {}
    level: list[tuple[int, ...]] = [(src,)]
    while level:
        following = []
        for path in level:
            for device in neighbours[path[-1]]:
                if device == src or device in found or links[direct[path[-1], device]].bytes_per_second < width:
                    continue
                found[device] = (*path, device)
                following.append(found[device])
        level = following
    return found
