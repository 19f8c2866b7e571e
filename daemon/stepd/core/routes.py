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
    routes = {}
    for src in range(n_devices):
        for dst in range(n_devices):
            if src == dst:
                continue
            path = (src, dst) if (src, dst) in direct else _widest_path(src, dst, neighbours, direct, links)
            if path is not None:
                routes[src, dst] = _route(path, direct, links)
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


def _widest_path(
    src: int,
    dst: int,
    neighbours: list[list[int]],
    direct: dict[tuple[int, int], int],
    links: tuple[Link, ...],
) -> tuple[int, ...] | None:
    """Try bandwidths from the widest down; the first that connects the pair is the bottleneck of the best path."""
    for width in sorted({link.bytes_per_second for link in links}, reverse=True):
        path = _first_shortest_path(src, dst, width, neighbours, direct, links)
        if path is not None:
            return path
    return None


def _first_shortest_path(
    src: int,
    dst: int,
    width: float,
    neighbours: list[list[int]],
    direct: dict[tuple[int, int], int],
    links: tuple[Link, ...],
) -> tuple[int, ...] | None:
    """Breadth first over links at least `width` wide.

    Paths of one level are extended in lexicographic order, smallest neighbour first, so that the first path to reach a device
    is the lexicographically smallest of the shortest ones.
    """
    seen = {src}
    level: list[tuple[int, ...]] = [(src,)]
    while level:
        following = []
        for path in level:
            for device in neighbours[path[-1]]:
                if device in seen or links[direct[path[-1], device]].bytes_per_second < width:
                    continue
                if device == dst:
                    return (*path, dst)
                seen.add(device)
                following.append((*path, device))
        level = following
    return None
