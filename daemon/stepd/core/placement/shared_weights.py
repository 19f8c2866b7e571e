"""The weights that towers share, and what of the graph belongs to each of them: parameter servers' share of a replicated graph.

A part is the colocation group of a weight that several towers read, with what no tower holds around it: its reads, the average of
its gradients, its update. Parts are handed to devices as TensorFlow's users do, in turn (`tf.train.replica_device_setter`) or
the largest first to whoever has least (`tf.contrib.training.GreedyLoadBalancingStrategy`). It knows no names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepd.core.compiled import inlined, kernel
from stepd.core.placement.sharing_out import Shares
from stepd.core.prepared import Prepared, Tables
from stepd.core.problem import Float, Index, Int

MOST_TOWERS = 62
"""Towers that are told apart, one bit each; those beyond count as one of these."""


@dataclass(frozen=True, eq=False)
class Parts:
    """part: int32 [n], -1 for what belongs to none. towers: int64 [n] as given, without what is in a part."""

    part: Index
    towers: Int
    count: int


def parts_of(prepared: Prepared, towers: Int) -> Parts:
    """The parts of a graph with `towers`, int64 [n], -1 for ops that belong to none; numbered by their groups."""
    tables = prepared.tables
    read_by = np.zeros(prepared.n_groups, dtype=np.int64)
    _readers(tables, towers, read_by)
    shared = (prepared.group_resident > 0) & (read_by & (read_by - 1) != 0)  # more than one bit
    number = np.full(prepared.n_groups, -1, dtype=np.int32)
    number[shared] = np.arange(int(shared.sum()), dtype=np.int32)
    part = number[tables.group]
    own = np.where(part >= 0, -1, towers)
    _around(tables, own, part)
    return Parts(part, own, int(shared.sum()))


@kernel
def _readers(tables: Tables, towers: Int, read_by: Int) -> None:
    """Fill `read_by` [g]: bits of the towers that read what a group's ops send, through ops that no tower holds."""
    n = len(towers)
    reached = np.zeros(n, dtype=np.int64)
    for at in range(n - 1, -1, -1):
        op = tables.topological[at]
        for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
                reader = tables.reader[k]
                if towers[reader] >= 0 and tables.group[reader] != tables.group[op]:
                    reached[op] |= np.int64(1) << (towers[reader] % MOST_TOWERS)
                else:
                    reached[op] |= reached[reader]
        read_by[tables.group[op]] |= reached[op]


@kernel
def _around(tables: Tables, towers: Int, part: Index) -> None:
    """Ops that neither a tower nor a part holds join the part that reads most of them, or else that they read most of. Twice: an
    update says where the mean of gradients that it reads belongs."""
    n = len(towers)
    for turn in range(4):
        for k in range(n):
            op = tables.topological[k if turn % 2 == 1 else n - 1 - k]
            if towers[op] >= 0 or part[op] >= 0:
                continue
            if turn % 2 == 1:
                part[op] = _part_read(tables, part, op)
            else:
                part[op] = _part_reading(tables, part, op)


@inlined
def _part_reading(tables: Tables, part: Index, op: int) -> int:
    most, found = -1, -1
    for output in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
        for k in range(tables.reader_pointer[output], tables.reader_pointer[output + 1]):
            if part[tables.reader[k]] >= 0 and tables.output_bytes[output] > most:
                most, found = tables.output_bytes[output], part[tables.reader[k]]
    return found


@inlined
def _part_read(tables: Tables, part: Index, op: int) -> int:
    most, found = -1, -1
    for k in range(tables.input_pointer[op], tables.input_pointer[op + 1]):
        producer = tables.output_op[tables.input[k]]
        if part[producer] >= 0 and tables.output_bytes[tables.input[k]] > most:
            most, found = tables.output_bytes[tables.input[k]], part[producer]
    return found


def bytes_of(prepared: Prepared, parts: Parts, devices: Index) -> Shares:
    """The bytes in memory of each part."""
    size = _sums(parts, prepared.tables.resident)
    return Shares(np.repeat(size[:, None], len(devices), axis=1), np.zeros(len(devices)))


def seconds_of(prepared: Prepared, parts: Parts, home: Index, devices: Index) -> Shares:
    """The seconds of each part. home: int32 [n], the device of what is in no part, -1 where that is not known."""
    seconds = prepared.tables.seconds[:, devices]
    takes = np.where(np.isfinite(seconds), seconds, 0.0)
    there = [float(column[(home == device) & (parts.part < 0)].sum()) for device, column in zip(devices, takes.T, strict=True)]
    return Shares(np.stack([_sums(parts, column) for column in takes.T], axis=1), np.array(there) - min(there))


def _sums(parts: Parts, values: Float | Int) -> Float:
    inside = parts.part >= 0
    return np.bincount(parts.part[inside], weights=values[inside], minlength=parts.count).astype(np.float64)
