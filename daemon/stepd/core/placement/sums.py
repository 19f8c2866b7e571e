"""How the terms of a sum may be added up by several devices: all where the sum is wanted, a tree, or in slices.

A shape is written as in `Split.into`: for each slice of the sum, where part k's share of the adding goes. Trees follow what sending
costs, near terms first. It knows no graph and no simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stepd.core.errors import StrategyError
from stepd.core.problem import Float

Into = tuple[int, ...]
TREE, SLICES, RING = SHAPES = ("tree", "slices, each on a device", "slices around a ring")


def slices_of(into: Into, parts: int) -> list[Into]:
    """The trees of `into`, one a slice; none when all terms go to the op itself. Raises StrategyError for what is no tree."""
    if len(into) % parts or any(not 0 <= k < parts for k in into):
        raise StrategyError(f"adding up a sum of {parts} terms takes {parts} numbers below {parts} for each slice, not {into}")
    trees = [into[k : k + parts] for k in range(0, len(into), parts)]
    for tree in trees:
        inwards(tree)
    return trees


def inwards(tree: Into) -> list[int]:
    """The parts of one tree, each behind those that send to it. Raises StrategyError when some send in a circle."""
    order = [k for k, to in enumerate(tree) if to == k]
    for k in order:  # it grows
        order += [j for j, to in enumerate(tree) if to == k and j != k]
    if len(order) < len(tree):
        raise StrategyError(f"the terms of a sum go in a circle: {tree}")
    return order[::-1]


def shapes(devices: Sequence[int], home: int, send: Float) -> Iterator[tuple[str, Into]]:
    """(name of SHAPES, into) for one term of each of `devices` and an op on device `home`; none for two devices.

    send: float64 [d, d], seconds that a whole term takes from one device to another, 0 on the diagonal.
    """
    parts = len(devices)
    places = list(dict.fromkeys(devices))
    if len(places) < 3:
        return
    root = devices.index(home) if home in devices else min(range(parts), key=lambda k: (send[devices[k], home], k))
    yield TREE, _tree(devices, root, send)
    within = {k: devices.index(devices[k]) for k in range(parts)}  # terms of one device meet at its first part
    first = [devices.index(place) for place in places]
    star = [tuple(end if within[k] == k else within[k] for k in range(parts)) for end in first]
    yield SLICES, tuple(k for tree in star for k in tree)
    ring = _ring([devices[k] for k in first], send)
    chains = [dict(zip(turned, [*turned[1:], turned[-1]], strict=True)) for turned in _turns([first[k] for k in ring])]
    yield RING, tuple(chain[k] if within[k] == k else within[k] for chain in chains for k in range(parts))


def _tree(devices: Sequence[int], root: int, send: Float) -> Into:
    """Always the two parts are added up that are together first, one term after the other, until all are with the part `root`."""
    ready = dict.fromkeys(range(len(devices)), 0.0)
    into = list(ready)
    while len(ready) > 1:
        pairs = [(source, target) for source in ready if source != root for target in ready if target != source]
        ends = {(i, j): max(ready[i], ready[j]) + float(send[devices[i], devices[j]]) for i, j in pairs}
        source, target = min(pairs, key=lambda pair: (ends[pair], pair[::-1]))
        into[source] = target
        ready[target] = ends[source, target]
        del ready[source]
    return tuple(into)


def _ring(devices: Sequence[int], send: Float) -> list[int]:
    """An order of `devices` in which neighbours are near: always on to the nearest that is left."""
    order, left = [0], list(range(1, len(devices)))
    while left:
        nearest = min(left, key=lambda k: (send[devices[order[-1]], devices[k]], k))
        order.append(nearest)
        left.remove(nearest)
    return order


def _turns(ring: Sequence[int]) -> Iterator[list[int]]:
    for k in range(len(ring)):
        yield [*ring[k:], *ring[:k]]
