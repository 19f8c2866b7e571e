"""The prepared arrays of a problem with ops, outputs and edges added: what a list of splits amounts to.

Everything is made anew from the base in one piece; it takes a few milliseconds at 36k ops. It knows no split.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index, Int

CUT, PART, SUM, WHOLE = 0, 1, 2, 3
"""Kinds of ops of a split problem: a cut, a part, a sum of some of the parts' terms; a join, or an op that is not split."""


@dataclass(eq=False)
class Additions:
    """New ops are numbered from the base's number of ops on, new outputs from its number of outputs on, as they are listed."""

    seconds: list[Float] = field(default_factory=list)  # of each new op, [d]
    temp: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)  # of each new op; -1: a new group of its own
    outputs: list[tuple[int, int, int]] = field(default_factory=list)  # (op, index, bytes)
    edges: list[tuple[int, int]] = field(default_factory=list)  # (output, reader)
    dropped: list[int] = field(default_factory=list)  # edges of the base that are gone
    changed: dict[int, tuple[Float, int]] = field(default_factory=dict)  # op of the base -> its seconds [d] and temp bytes now


@dataclass(frozen=True, eq=False)
class Edges:
    """The edges of a problem, in the two orders in which its tables list them, so that adding a few leaves little to sort."""

    output: Int  # [m] output of every edge, by output
    reader: Int  # [m]
    by_reader: Int  # [m] the edges by reader


def edges_of(tables: Tables) -> Edges:
    """Both ends of every edge, int64."""
    readers = np.diff(tables.reader_pointer)
    reader = tables.reader.astype(np.int64)
    return Edges(np.repeat(np.arange(len(readers), dtype=np.int64), readers), reader, np.argsort(reader, kind="stable"))


def with_additions(base: Prepared, edges: Edges, draft: Additions) -> Prepared:
    """Tables of the base with the additions. edges: those of the base."""
    tables = base.tables
    outputs = np.array(draft.outputs, dtype=np.int64).reshape(-1, 3)
    added = np.array(draft.edges, dtype=np.int64).reshape(-1, 2)
    kept = np.ones(len(edges.output), dtype=bool)
    kept[draft.dropped] = False
    edge_output = np.concatenate([edges.output[kept], added[:, 0]])
    edge_reader = np.concatenate([edges.reader[kept], added[:, 1]])
    read = edges.by_reader[kept[edges.by_reader]]
    reading = np.concatenate([edges.reader[read], added[:, 1]])
    read_output = np.concatenate([edges.output[read], added[:, 0]])
    n = len(tables.temp) + len(draft.temp)
    output_op = np.concatenate([tables.output_op, outputs[:, 0].astype(np.int32)])
    output_bytes = np.concatenate([tables.output_bytes, outputs[:, 2]])
    output_bytes[np.bincount(edge_output, minlength=len(output_bytes)) == 0] = 0  # nobody reads it any more
    by_output = np.argsort(edge_output, kind="stable")
    by_reader = np.argsort(reading, kind="stable")
    output_pointer = _pointer(output_op, n)
    reader_pointer, reader = _pointer(edge_output, len(output_op)), edge_reader[by_output].astype(np.int32)
    input_pointer, inputs = _pointer(edge_reader, n), read_output[by_reader].astype(np.int32)
    seconds, resident, temp, group, group_seconds, group_resident = _op_columns(base, draft)
    group_pointer = _pointer(group, len(group_resident))
    split_tables = tables._replace(
        seconds=seconds,
        resident=resident,
        temp=temp,
        output_pointer=output_pointer,
        output_bytes=output_bytes,
        output_op=output_op,
        reader_pointer=reader_pointer,
        reader=reader,
        input_pointer=input_pointer,
        input=inputs,
        group=group,
        group_pointer=group_pointer,
        group_op=np.argsort(group, kind="stable").astype(np.int32),
    )
    split_tables = split_tables._replace(topological=_kahn(split_tables))
    output_index = np.concatenate([base.output_index, outputs[:, 1].astype(np.int32)])
    return Prepared(split_tables, base.routes, group_seconds, group_resident, output_index)


def _op_columns(base: Prepared, draft: Additions) -> tuple[Float, Int, Int, Index, Float, Int]:
    """seconds, resident, temp and group per op; seconds and resident bytes per group."""
    tables = base.tables
    seconds = np.concatenate([tables.seconds, np.array(draft.seconds).reshape(-1, tables.seconds.shape[1])])
    temp = np.concatenate([tables.temp, np.array(draft.temp, dtype=np.int64)])
    for op, (as_join, bytes_made) in draft.changed.items():
        seconds[op], temp[op] = as_join, bytes_made
    wanted = np.array(draft.group, dtype=np.int64)
    alone = wanted < 0
    wanted[alone] = base.n_groups + np.arange(int(alone.sum()))
    group = np.concatenate([tables.group, wanted.astype(np.int32)])
    new_seconds = seconds[len(tables.temp) :][alone]
    group_seconds = np.concatenate([base.group_seconds, new_seconds])
    group_resident = np.concatenate([base.group_resident, np.zeros(len(new_seconds), dtype=np.int64)])
    resident = np.concatenate([tables.resident, np.zeros(len(draft.temp), dtype=np.int64)])
    return seconds, resident, temp, group, group_seconds, group_resident


def _pointer(rows: Index | Int, count: int) -> Index:
    pointer = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=pointer[1:])
    return pointer


@kernel
def _kahn(tables: Tables) -> Index:
    """A topological order, int32; shorter than n when there is a cycle."""
    n = len(tables.temp)
    missing = np.empty(n, dtype=np.int32)
    order = np.empty(n, dtype=np.int32)
    done = 0
    for op in range(n):
        missing[op] = tables.input_pointer[op + 1] - tables.input_pointer[op]
        if missing[op] == 0:
            order[done] = op
            done += 1
    scanned = 0
    while scanned < done:
        op = order[scanned]
        scanned += 1
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for r in range(tables.reader_pointer[o], tables.reader_pointer[o + 1]):
                reader = tables.reader[r]
                missing[reader] -= 1
                if missing[reader] == 0:
                    order[done] = reader
                    done += 1
    return np.copy(order[:done])
