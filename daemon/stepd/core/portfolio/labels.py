"""What belongs together in a graph, as labels: by names, by shared weights, by repetition, by depth.

A labelling says for every op which part it belongs to, parts numbered in the order in which a step reaches them (int32 [n]). A
human expert places by such parts: layers, towers, time steps. Names are used where they say something; weights, repetition and
depth need none. It knows no devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepd.core.compiled import lean
from stepd.core.placement.data_parallel import towers_of
from stepd.core.placement.replicas import components, replicas_of
from stepd.core.placement.shared_weights import parts_of
from stepd.core.portfolio.name_labels import by_numbered_part, by_scope, scopes_of
from stepd.core.prepared import Prepared, Tables, prepare
from stepd.core.problem import Float, Index, Problem

MAX_PARTS = 4096


@dataclass(frozen=True, eq=False)
class Labelling:
    """label: int32 [n], parts 0..count - 1 in the order in which a step reaches them. kind: where it comes from. folded: whether
    the parts are what a graph with repetitions is folded into, in no order."""

    kind: str
    label: Index
    count: int
    folded: bool = False


def labellings(problem: Problem, numbered: Sequence[Labelling] | None = None) -> list[Labelling]:
    """Every way found to see the graph as parts, without repetitions. numbered: the problem's `numbered_parts`, where known."""
    prepared = prepare(problem)
    scopes = [(f"scope-{depth}", label) for depth, label in by_scope(*scopes_of(problem.op_names))]
    others = [("weights", _by_weights(prepared, positions(prepared.tables)))]
    towers = _by_repetition(problem, prepared, op_cost(prepared))
    if towers is not None:
        others.append(("towers", towers))
    if ((replicas := replicas_of(problem)) >= 0).any():
        others.append(("replicas", replicas.astype(np.int32)))
    named = numbered_parts(problem) if numbered is None else numbered
    kept: list[Labelling] = []
    seen: set[bytes] = set()
    for labelling in [*_completed(prepared, scopes), *named, *_completed(prepared, others)]:
        if (parts := labelling.label.tobytes()) not in seen:
            seen.add(parts)
            kept.append(labelling)
    return kept


def towers_and_weights(problem: Problem) -> list[Labelling]:
    """Towers, where there are any, and each weight that they share, with what belongs to it: to be moved, not to be shared out."""
    prepared, towers = prepare(problem), towers_of(problem)
    if not (towers >= 0).any():
        return []
    part = parts_of(prepared, towers).part
    label = np.where(part >= 0, towers.max() + 1 + part, towers).astype(np.int32)
    return _completed(prepared, [("towers and weights", label)])


def numbered_parts(problem: Problem) -> list[Labelling]:
    """The parts that names number: layers, cells, towers. Quickly found, and what a human expert looks at first."""
    found = by_numbered_part(*scopes_of(problem.op_names))
    return _completed(prepare(problem), [(f"index {base!r}", label) for base, label in found])


def _completed(prepared: Prepared, found: Sequence[tuple[str, Index]]) -> list[Labelling]:
    """Labellings of all ops, from those of some."""
    cost, position = op_cost(prepared), positions(prepared.tables)
    result = []
    for kind, partial in found:
        label = in_order(complete(prepared.tables, partial), position, partial, cost)
        count = int(label.max()) + 1
        if 1 < count <= MAX_PARTS:
            result.append(Labelling(kind, label, count))
    return result


def op_cost(prepared: Prepared) -> Float:
    """Seconds of each op on its best device. float64 [n]."""
    cost: Float = prepared.tables.seconds.min(axis=1)
    return cost


def positions(tables: Tables) -> Index:
    position = np.empty(len(tables.topological), dtype=np.int32)
    position[tables.topological] = np.arange(len(position), dtype=np.int32)
    return position


def _by_weights(prepared: Prepared, position: Index) -> Index:
    """Ops by the weights that they use last: the ops of a layer, whatever their names, all time steps of a cell together."""
    tables = prepared.tables
    label = np.full(len(position), -1, dtype=np.int32)
    weighty = np.flatnonzero(prepared.group_resident > 0)
    number = np.full(len(prepared.group_resident), -1, dtype=np.int32)
    number[weighty] = np.arange(len(weighty), dtype=np.int32)
    label[:] = number[tables.group]
    _inherit_weights(tables, label)
    return label.astype(np.int32)


@lean
def _inherit_weights(tables: Tables, label: Index) -> None:
    """Producers first: an op without weights of its own takes those of the input that comes straight from weights, else of its
    largest input. `label` [n] is filled in place; -1 stays where nothing upstream has weights."""
    n = len(label)
    for at in range(n):
        op = tables.topological[at]
        if label[op] >= 0:
            continue
        largest = -1
        straight = False
        for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
            output = tables.input[k]
            producer = tables.output_op[output]
            # Variables and their reads have no inputs with activations: at most one input in a row from a source.
            ins = tables.input_pointer[producer + 1] - tables.input_pointer[producer]
            pure = ins == 0 or (
                ins == 1
                and tables.input_pointer[tables.output_op[tables.input[tables.input_pointer[producer]]] + 1]
                == tables.input_pointer[tables.output_op[tables.input[tables.input_pointer[producer]]]]
            )
            if label[producer] < 0 or (straight and not pure):
                continue
            if tables.output_bytes[output] > largest or (pure and not straight):
                largest = tables.output_bytes[output]
                label[op] = label[producer]
                straight = pure


def _by_repetition(problem: Problem, prepared: Prepared, cost: Float) -> Index | None:
    """Isomorphic parts, by structure alone: components of the ops that come k at a time, for the k that covers most seconds."""
    tables = prepared.tables
    total = float(cost.sum())
    classes = structural_classes(problem, prepared)
    sizes = np.bincount(classes)[classes]
    best: tuple[float, Index] | None = None
    for k in sorted({int(size) for size in np.unique(sizes) if 2 <= size <= 64}):
        repeated = (sizes % k == 0) & (sizes < max(16 * k, 64))
        if cost[repeated].sum() < 0.5 * total:
            continue
        component = components(tables, repeated)
        weight = np.bincount(component[component >= 0], weights=cost[component >= 0])
        large = np.flatnonzero(weight > 0.25 * weight.max()) if len(weight) else np.zeros(0, dtype=np.intp)
        covered = float(weight[large].sum())
        alike = len(large) >= 2 and weight[large].min() > 0.8 * weight[large].max()
        if alike and covered > 0.5 * total and (best is None or covered > best[0]):
            number = np.full(len(weight) + 1, -1, dtype=np.int32)
            number[large] = np.arange(len(large), dtype=np.int32)
            best = covered, number[component]
    return None if best is None else best[1]


def structural_classes(problem: Problem, prepared: Prepared, rounds: int = 3) -> Index:
    """Ops alike in type, cost and neighbourhood up to `rounds` edges away (Weisfeiler-Lehman colours). int32 [n]."""
    tables = prepared.tables
    kinds = {kind: k for k, kind in enumerate(sorted(set(problem.op_types)))}
    kind = np.array([kinds[item] for item in problem.op_types], dtype=np.int64)
    coarse_cost = np.round(np.log2(tables.seconds.min(axis=1) + 1e-9) * 4).astype(np.int64)
    ins, outs = np.diff(tables.input_pointer), np.bincount(tables.output_op, minlength=len(kind))
    colour = _mixed(kind, coarse_cost, ins, outs)
    output = np.repeat(np.arange(len(tables.output_op)), np.diff(tables.reader_pointer))
    src, dst = tables.output_op[output], tables.reader
    for _ in range(rounds):
        up, down = np.zeros_like(colour), np.zeros_like(colour)
        np.add.at(up, dst, colour[src])
        np.add.at(down, src, colour[dst])
        colour = _mixed(colour, up, down)
    return np.unique(colour, return_inverse=True)[1].reshape(-1).astype(np.int32)


def _mixed(*columns: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """One 64-bit hash per row, spread so that sums of hashes tell multisets apart."""
    z = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        z = (z ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) + np.uint64(0x94D049BB133111EB)
    return z


def complete(tables: Tables, label: Index) -> Index:
    """Every op without a label takes that of the neighbour that it shares most bytes with: producers first, then consumers."""
    label = label.astype(np.int32).copy()
    for _ in range(3):
        _spread(tables, label)
        if (label >= 0).all():
            break
    label[label < 0] = label.max() + 1
    return label


@lean
def _spread(tables: Tables, label: Index) -> None:
    """One pass down and one pass up the graph; fills `label` [n] in place."""
    n = len(label)
    for at in range(n):
        op = tables.topological[at]
        largest = -1
        if label[op] < 0:
            for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
                output = tables.input[k]
                if label[tables.output_op[output]] >= 0 and tables.output_bytes[output] > largest:
                    largest = tables.output_bytes[output]
                    label[op] = label[tables.output_op[output]]
    for at in range(n - 1, -1, -1):
        op = tables.topological[at]
        largest = -1
        if label[op] < 0:
            for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
                for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                    if label[tables.reader[k]] >= 0 and tables.output_bytes[output] > largest:
                        largest = tables.output_bytes[output]
                        label[op] = label[tables.reader[k]]


def in_order(label: Index, position: Index, named: Index, cost: Float) -> Index:
    """Renumber parts by the time at which a step has done the first tenth of their work: layers in forward order."""
    order = np.lexsort((position, label))
    sorted_label = label[order]
    work = np.cumsum(cost[order])
    begins = np.flatnonzero(np.r_[True, sorted_label[1:] != sorted_label[:-1]])
    ends = np.r_[begins[1:], len(order)]
    before = np.where(begins > 0, work[begins - 1], 0.0)
    mark = np.minimum(np.searchsorted(work, before + 0.1 * (work[ends - 1] - before)), ends - 1)
    first = position[order[mark]]
    rank = np.empty(int(label.max()) + 1, dtype=np.int32)
    rank[sorted_label[begins][np.argsort(first, kind="stable")]] = np.arange(len(begins), dtype=np.int32)
    return rank[label]
