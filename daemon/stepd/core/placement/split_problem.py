"""A problem with some of its ops split into parts, and the way back (FastT section 5.2, SplitOperation).

A split op stays as the join of its parts: its readers, its colocation group and its resident bytes are untouched, so that
`placement[op]` says where the parts are joined. Its parts are new ops; every input that the split cuts gets a new op that cuts it
where it was made; an input that is not cut goes to every part whole. Where two split ops meet on one axis with equal parts, the
join and the cut between them cancel and part k feeds part k. Equal `weights` are meant when a split names none.

Everything is done on the prepared arrays, in one piece for a whole list of splits: a planner that tries a thousand lists needs no
faster way. It knows no algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stepd.core.compiled import kernel
from stepd.core.errors import StrategyError
from stepd.core.prepared import Prepared, Tables, prepare
from stepd.core.problem import Float, Index, Int, Problem, SplitChoice
from stepd.core.strategy import Split

CONTROL = -1


@dataclass(frozen=True)
class SplitCosts:
    """What a part, a cut and a join cost beyond their share: a kernel launch, and moving bytes within a device's memory."""

    overhead_seconds: float = 5e-6
    copy_bytes_per_second: float = 1e11


@dataclass(frozen=True, eq=False)
class Splittable:
    """What does not depend on the splits: computed once for a problem."""

    problem: Problem
    prepared: Prepared
    choices: dict[tuple[int, str], SplitChoice]
    inputs: dict[int, tuple[int, ...]]  # op with choices -> the data outputs that it reads, in the order of its edges
    edge_output: Int  # [m] output of every edge
    edge_reader: Int  # [m]


@dataclass(frozen=True, eq=False)
class SplitProblem:
    """The arrays of the split problem. Ops 0..n-1 are the ops of the original problem, in their places."""

    prepared: Prepared
    n_original: int
    splits: tuple[Split, ...]
    parts: tuple[tuple[int, ...], ...]  # per split, the ops that are its parts
    origin: Int  # [n'] original op that an op belongs to: of a part or a cut, the split op
    kind: Int  # [n'] CUT, PART or WHOLE (a join, or an op that is not split)


CUT, PART, WHOLE = 0, 1, 2


def splittable(problem: Problem) -> Splittable:
    """Look up what the splits of `problem` will need."""
    prepared = prepare(problem)
    tables = prepared.tables
    choices = {(choice.op, choice.axis): choice for choice in problem.split_choices}
    number = {(int(op), int(index)): o for o, (op, index) in enumerate(zip(tables.output_op, prepared.output_index, strict=True))}
    inputs = {}
    for op in {choice.op for choice in problem.split_choices}:
        edges = np.flatnonzero((problem.edge_dst == op) & (problem.edge_output != CONTROL))
        read = [number[int(problem.edge_src[e]), int(problem.edge_output[e])] for e in edges]
        inputs[op] = tuple(dict.fromkeys(read))
    readers = np.diff(tables.reader_pointer)
    return Splittable(
        problem,
        prepared,
        choices,
        inputs,
        np.repeat(np.arange(len(readers), dtype=np.int64), readers),
        tables.reader.astype(np.int64),
    )


def split_problem(base: Splittable, splits: Sequence[Split], costs: SplitCosts) -> SplitProblem:
    """The problem with `splits` carried out. Raises StrategyError for a split that the problem does not offer."""
    draft = _Draft(base, costs)
    for split in splits:
        draft.add_parts(split)
    for split in splits:
        draft.connect_inputs(split)
    for split in splits:
        draft.join(split)
    return draft.finished(tuple(splits))


def shares(split: Split) -> tuple[float, ...]:
    """The share of the whole that each part gets; they sum up to 1."""
    if not split.weights:
        return (1.0 / split.parts,) * split.parts
    total = sum(split.weights)
    return tuple(weight / total for weight in split.weights)


@dataclass(eq=False)
class _Draft:
    """New ops, outputs and edges on top of a problem; new outputs are made in the order of their ops."""

    base: Splittable
    costs: SplitCosts
    parts: dict[int, list[int]] = field(default_factory=dict)
    by_op: dict[int, Split] = field(default_factory=dict)
    part_output: dict[tuple[int, int], int] = field(default_factory=dict)  # (part, output index) -> output
    cuts: dict[tuple[int, tuple[float, ...]], list[int]] = field(default_factory=dict)
    dropped: list[int] = field(default_factory=list)  # edges of the base that are gone
    cancelled: dict[int, int] = field(default_factory=dict)  # output -> readers that take parts instead
    edges: list[tuple[int, int]] = field(default_factory=list)  # (output, reader)
    outputs: list[tuple[int, int, int]] = field(default_factory=list)  # (op, index, bytes)
    seconds: list[Float] = field(default_factory=list)
    temp: list[int] = field(default_factory=list)
    group: list[int] = field(default_factory=list)  # group of a new op; -1: a new group of its own
    origin: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    changed: dict[int, tuple[Float, int]] = field(default_factory=dict)  # op -> seconds and temp as a join

    def add_parts(self, split: Split) -> None:
        """The parts as ops, with their outputs."""
        tables, problem = self.base.prepared.tables, self.base.problem
        choice = self.base.choices.get((split.op, split.axis))
        if choice is None or not 2 <= split.parts <= choice.max_parts or len(split.weights) not in (0, split.parts):
            raise StrategyError(
                f"op {problem.op_names[split.op]!r} cannot be split on {split.axis!r} into {split.parts} parts here"
            )
        if split.op in self.by_op:
            raise StrategyError(f"op {problem.op_names[split.op]!r} is split twice")
        self.by_op[split.op] = split
        self.parts[split.op] = []
        first, last = tables.output_pointer[split.op], tables.output_pointer[split.op + 1]
        for share in shares(split):
            seconds = tables.seconds[split.op] * share + self.costs.overhead_seconds
            whole = sum(self._joined(choice, o) for o in range(first, last)) if choice.adds else 0
            part = self._new_op(seconds, int(tables.temp[split.op] * share) + int(whole * (1 - share)), -1, split.op, PART)
            self.parts[split.op].append(part)
            for o in range(first, last):
                index = int(self.base.prepared.output_index[o])
                size = self._joined(choice, o) * (1.0 if choice.adds else share)
                self.part_output[part, index] = self._new_output(part, index, int(size))
            if (part, CONTROL) not in self.part_output:
                self.part_output[part, CONTROL] = self._new_output(part, CONTROL, 0)

    def _joined(self, choice: SplitChoice, o: int) -> int:
        index = int(self.base.prepared.output_index[o])
        if index == CONTROL:
            return 0
        known = choice.joined_bytes[index] if index < len(choice.joined_bytes) else 0
        return known or int(self.base.prepared.tables.output_bytes[o])

    def connect_inputs(self, split: Split) -> None:
        """Give every part what it reads."""
        tables, op = self.base.prepared.tables, split.op
        choice = self.base.choices[op, split.axis]
        cut_bytes = dict(zip(self.base.inputs[op], choice.cut_bytes, strict=False))
        for edge in self._edges_into(op):
            o = int(self.base.edge_output[edge])
            self.dropped.append(edge)
            producer = int(tables.output_op[o])
            if cut_bytes.get(o, 0) < 0 and not self._hands_on_terms(producer, split):
                name, source = self.base.problem.op_names[op], self.base.problem.op_names[producer]
                raise StrategyError(f"op {name!r} cannot be split on {split.axis!r}: {source!r} is not split into terms alike")
            if not cut_bytes.get(o, 0):
                self.edges.extend((o, part) for part in self.parts[op])
            elif cut_bytes[o] < 0 or self._cancels(producer, split):
                self.cancelled[o] = self.cancelled.get(o, 0) + 1
                index = int(self.base.prepared.output_index[o])
                pairs = zip(self.parts[producer], self.parts[op], strict=True)
                self.edges.extend((self.part_output[source, index], part) for source, part in pairs)
            else:
                self.edges.extend(zip(self._cut(o, cut_bytes[o], split), self.parts[op], strict=True))

    def _edges_into(self, op: int) -> list[int]:
        """Edges of the base into `op`: a handful, found through the outputs that it reads."""
        tables = self.base.prepared.tables
        found = []
        for o in tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]]:
            first = int(tables.reader_pointer[o])
            readers = tables.reader[first : int(tables.reader_pointer[o + 1])]
            found.append(first + int(np.flatnonzero(readers == op)[0]))
        return found

    def _cancels(self, producer: int, split: Split) -> bool:
        other = self.by_op.get(producer)
        return (
            other is not None
            and other.axis == split.axis
            and shares(other) == shares(split)
            and not self.base.choices[producer, other.axis].adds
        )

    def _hands_on_terms(self, producer: int, split: Split) -> bool:
        other = self.by_op.get(producer)
        if other is None or other.axis != split.axis or shares(other) != shares(split):
            return False
        return self.base.choices[producer, other.axis].adds

    def _cut(self, o: int, nbytes: int, split: Split) -> list[int]:
        """The pieces of output `o`, cut where it is made; two readers that want the same pieces share them."""
        key = (o, shares(split))
        if key not in self.cuts:
            producer = int(self.base.prepared.tables.output_op[o])
            group = int(self.base.prepared.tables.group[producer])
            cut = self._new_op(self._copy_seconds(nbytes), nbytes, group, split.op, CUT)
            self.edges.append((o, cut))
            self.cuts[key] = [self._new_output(cut, k, int(nbytes * share)) for k, share in enumerate(shares(split))]
        return self.cuts[key]

    def join(self, split: Split) -> None:
        """Turn the op itself into the join of its parts."""
        tables, op = self.base.prepared.tables, split.op
        choice = self.base.choices[op, split.axis]
        moved = 0
        for o in range(tables.output_pointer[op], tables.output_pointer[op + 1]):
            index = int(self.base.prepared.output_index[o])
            readers = int(tables.reader_pointer[o + 1] - tables.reader_pointer[o])
            if index == CONTROL or self.cancelled.get(o, 0) == readers:
                continue
            moved += self._joined(choice, o) * (split.parts if choice.adds else 1)
            self.edges.extend((self.part_output[part, index], op) for part in self.parts[op])
        if not moved:
            self.edges.extend((self.part_output[part, CONTROL], op) for part in self.parts[op])
        runs = np.isfinite(tables.seconds[op])
        seconds = np.where(runs, self._copy_seconds(moved) if moved else 0.0, np.inf)
        self.changed[op] = (seconds, int(moved / (split.parts if choice.adds else 1)))

    def _copy_seconds(self, nbytes: int) -> Float:
        devices = len(self.base.prepared.tables.memory)
        return np.full(devices, self.costs.overhead_seconds + nbytes / self.costs.copy_bytes_per_second)

    def _new_op(self, seconds: Float, temp: int, group: int, origin: int, kind: int) -> int:
        self.seconds.append(seconds)
        self.temp.append(temp)
        self.group.append(group)
        self.origin.append(origin)
        self.kind.append(kind)
        return self.base.problem.n_ops + len(self.seconds) - 1

    def _new_output(self, op: int, index: int, nbytes: int) -> int:
        self.outputs.append((op, index, nbytes))
        return len(self.base.prepared.tables.output_op) + len(self.outputs) - 1

    def finished(self, splits: tuple[Split, ...]) -> SplitProblem:
        """Put base and additions together."""
        base, n = self.base.prepared, self.base.problem.n_ops
        prepared = _assemble(self)
        origin = np.concatenate([np.arange(n), np.array(self.origin, dtype=np.int64)])
        kind = np.concatenate([np.full(n, WHOLE), np.array(self.kind, dtype=np.int64)])
        assert len(prepared.tables.topological) == len(origin) >= len(base.tables.topological)
        parts = tuple(tuple(self.parts[split.op]) for split in splits)
        return SplitProblem(prepared, n, splits, parts, origin, kind)


def _assemble(draft: _Draft) -> Prepared:
    """Tables of the base with the draft's additions."""
    base = draft.base.prepared
    tables = base.tables
    outputs = np.array(draft.outputs, dtype=np.int64).reshape(-1, 3)
    added = np.array(draft.edges, dtype=np.int64).reshape(-1, 2)
    edge_output = np.concatenate([np.delete(draft.base.edge_output, draft.dropped), added[:, 0]])
    edge_reader = np.concatenate([np.delete(draft.base.edge_reader, draft.dropped), added[:, 1]])
    n = len(tables.temp) + len(draft.temp)
    output_op = np.concatenate([tables.output_op, outputs[:, 0].astype(np.int32)])
    output_bytes = np.concatenate([tables.output_bytes, outputs[:, 2]])
    output_bytes[np.bincount(edge_output, minlength=len(output_bytes)) == 0] = 0  # nobody reads it any more
    by_output = np.argsort(edge_output, kind="stable")
    by_reader = np.argsort(edge_reader, kind="stable")
    output_pointer = _pointer(output_op, n)
    reader_pointer, reader = _pointer(edge_output, len(output_op)), edge_reader[by_output].astype(np.int32)
    input_pointer, inputs = _pointer(edge_reader, n), edge_output[by_reader].astype(np.int32)
    seconds, resident, temp, group, group_seconds, group_resident = _op_columns(draft)
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


def _op_columns(draft: _Draft) -> tuple[Float, Int, Int, Index, Float, Int]:
    """seconds, resident, temp and group per op; seconds and resident bytes per group."""
    base = draft.base.prepared
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
