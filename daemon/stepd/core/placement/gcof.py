"""GCOF, graph coarsening with operator fusion (Moirai, Algorithm 1): ops that the runtime would fuse stay together.

A depth-first walk fuses a vertex with a successor when the types of both, in order, are a rule, and binds them when they are a
part of one, in the hope of more; in the end what is only bound is released. Of the connections of Figure 6, direct ones and
multi-inputs count: the producer's output must have no other reader. Merging over such an edge never closes a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepd.core.placement.fusion_rules import Rule
from stepd.core.prepared import Tables
from stepd.core.problem import Index


@dataclass(frozen=True)
class _Vertex:
    """Ops of one vertex of the graph being coarsened. parts: what is released when `bound`."""

    ops: tuple[int, ...]
    types: tuple[str, ...]
    bound: bool = False
    parts: tuple[_Vertex, ...] = ()


class _Graph:
    """The graph while vertices merge."""

    def __init__(self, tables: Tables, types: Sequence[str]) -> None:
        self.vertex = [_Vertex((op,), (types[op],)) for op in range(len(types))]
        self._tables = tables

    def readers(self, vertex: _Vertex) -> list[_Vertex]:
        """The vertices that read something of `vertex`, control edges included, in the order of the ops."""
        tables, found = self._tables, {}
        for op in vertex.ops:
            for out in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
                for reader in tables.reader[tables.reader_pointer[out] : tables.reader_pointer[out + 1]].tolist():
                    if self.vertex[reader] is not vertex:
                        found[id(self.vertex[reader])] = self.vertex[reader]
        return sorted(found.values(), key=lambda other: other.ops)

    def merge(self, first: _Vertex, second: _Vertex, bound: bool) -> _Vertex:
        """fuse() and bind() of Algorithm 1."""
        both = _Vertex(first.ops + second.ops, first.types + second.types, bound, (first, second))
        self.put(both)
        return both

    def put(self, vertex: _Vertex) -> None:
        """Make `vertex` the vertex of its ops."""
        for op in vertex.ops:
            self.vertex[op] = vertex


def fuse(tables: Tables, types: Sequence[str], rules: Sequence[Rule], may_share: Callable[[int, int], bool]) -> Index:
    """Cluster of each op, int32 [n], dense from 0 in the order of the ops. `may_share`: whether two ops may share a device."""
    graph = _Graph(tables, types)
    kinds: dict[tuple[str, ...], str] = {}
    # Algorithm 1 starts at the root; a training graph has many.
    stack = [graph.vertex[op] for op in reversed(tables.topological.tolist()) if not _inputs(tables, op)]
    seen: set[int] = set()
    while stack:
        vertex = stack.pop()
        if graph.vertex[vertex.ops[0]] is not vertex or id(vertex) in seen:
            continue
        seen.add(id(vertex))
        readers = graph.readers(vertex)
        following = readers[0] if len(readers) == 1 else None  # direct connection or multi-inputs, never multi-outputs
        kind = _kind(vertex.types + following.types, rules, kinds) if following is not None else ""
        if following is not None and kind and may_share(vertex.ops[-1], following.ops[0]):
            stack.append(graph.merge(vertex, following, kind == "part"))
        else:
            stack.extend(reversed(readers))
    for vertex in dict.fromkeys(graph.vertex):
        _unbind(graph, vertex)
    first = np.array([vertex.ops[0] for vertex in graph.vertex])
    return np.unique(first, return_inverse=True)[1].astype(np.int32)


def _inputs(tables: Tables, op: int) -> int:
    return int(tables.input_pointer[op + 1] - tables.input_pointer[op])


def _kind(types: tuple[str, ...], rules: Sequence[Rule], known: dict[tuple[str, ...], str]) -> str:
    """ "rule" when `types` are one (is_rule), "part" when they are a contiguous part of one (is_sub_rule), else ""."""
    if types not in known:
        whole = any(_matches(types, rule) for rule in rules)
        part = any(_matches(types, rule[k : k + len(types)]) for rule in rules for k in range(len(rule) - len(types) + 1))
        known[types] = "rule" if whole else "part" if part else ""
    return known[types]


def _matches(types: tuple[str, ...], rule: Rule) -> bool:
    return len(types) == len(rule) and all(name in names for name, names in zip(types, rule, strict=True))


def _unbind(graph: _Graph, vertex: _Vertex) -> None:
    """Release what is only bound, down to what was fused before."""
    if vertex.bound:
        for part in vertex.parts:
            graph.put(part)
            _unbind(graph, part)
