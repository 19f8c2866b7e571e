"""What a step runs when some of its ops are in parts: the pieces, what each needs, and where it is. Pure.

A piece is called as its op; part k of an op in parts "<op>#<k>", and its join as the op. Cuts count as what they cut.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.rounds import rounds
from stepd.hook.order.walk import EXIT, NEXT
from stepd.hook.rewrite.chosen import Chosen

WHOLE = -1


@dataclass(frozen=True)
class Pieces:
    """By piece: the pieces that it needs; (op, part), part WHOLE of what is not a part; its device; its share of the op's work."""

    needed: Mapping[str, list[str]]
    origin: Mapping[str, tuple[str, int]]
    device_of: Mapping[str, str]
    share: Mapping[str, float]


def piece(op: str, part: int) -> str:
    """The name of a piece."""
    return op if part == WHOLE else f"{op}#{part}"


def pieces_of(view: GraphView, step: Collection[str], chosen: Mapping[str, Chosen], device_of: Mapping[str, str]) -> Pieces:
    """The pieces of a step that executes the ops `step`. `device_of`: of whole ops and of joins."""
    needed: dict[str, list[str]] = {}
    origin: dict[str, tuple[str, int]] = {}
    places: dict[str, str] = {}
    share: dict[str, float] = {}
    awaited = _Awaited(view, step, chosen)
    for name in (name for name in view.nodes if name in step):
        split = chosen.get(name)
        origin[name], places[name], share[name] = (name, WHOLE), device_of[name], 0.0 if split else 1.0
        if split is None:
            needed[name] = list(dict.fromkeys(awaited.by_whole(name)))
            continue
        needed[name] = [piece(name, k) for k in range(split.parts)]
        for k in range(split.parts):
            part = piece(name, k)
            origin[part] = name, k
            places[part] = split.devices[k] if split.devices else device_of[name]
            share[part] = (split.bounds[k + 1] - split.bounds[k]) / split.bounds[-1]
            needed[part] = list(dict.fromkeys(awaited.by_part(name, k)))
    return Pieces(needed, origin, places, share)


class _Awaited:
    def __init__(self, view: GraphView, step: Collection[str], chosen: Mapping[str, Chosen]) -> None:
        self._view, self._step, self._chosen = view, step, chosen
        self._groups: dict[tuple[str, int, int], list[str]] = {}

    def _inputs(self, name: str) -> list[tuple[str, int]]:
        nodes = self._view.nodes
        inputs = [(s, i) for s, i in nodes[name].inputs if nodes[s].op not in NEXT]
        if nodes[name].op in EXIT:
            inputs += [(source, 0) for source in rounds(self._view, name)]
        return [(source, index) for source, index in inputs if source in self._step]

    def by_whole(self, name: str) -> list[str]:
        found = []
        for source, index in self._inputs(name):
            split = self._chosen.get(source)
            found += [source] if split is None or index >= 0 else [piece(source, k) for k in range(split.parts)]
        return found

    def by_part(self, name: str, k: int) -> list[str]:
        own = self._chosen[name]
        data = [pair for pair in self._view.nodes[name].inputs if pair[1] >= 0]
        slots = dict(zip(data, own.way.inputs, strict=True))
        found = []
        for source, index in self._inputs(name):
            if index < 0:
                found += self._through_groups(source, k, own.parts)
                continue
            split = self._chosen.get(source)
            together = split is not None and split.bounds == own.bounds and slots[source, index].kind != "whole"
            found.append(piece(source, k) if together else source)
        return found

    def _through_groups(self, source: str, k: int, parts: int) -> list[str]:
        """What part `k` of an op waits for in place of the op `source`; NoOps, which gradients wait for, are looked through."""
        split = self._chosen.get(source)
        if split is not None:
            return [piece(source, k)] if split.parts == parts else [piece(source, j) for j in range(split.parts)]
        if self._view.nodes[source].op != "NoOp":
            return [source]
        key = source, k, parts
        if key not in self._groups:
            self._groups[key] = [source]  # a NoOp that waits for nothing
            inner = [w for s, _ in self._inputs(source) for w in self._through_groups(s, k, parts)]
            self._groups[key] = inner or [source]
        return self._groups[key]
