"""A problem with some of its ops split into parts, and the way back (FastT section 5.2, SplitOperation).

A split op stays as the join of its parts: its readers, its colocation group and its resident bytes are untouched, so that
`placement[op]` says where the parts are joined. Its parts are new ops; every input that the split cuts gets a new op that cuts it
where it was made; an input that is not cut goes to every part whole. Where two split ops meet on one axis with equal parts, the
join and the cut between them cancel and part k feeds part k. Small constants are made where parts need them, and equal reads of a
variable sent once. Equal `weights` are meant when a split names none. Part k waits for
part k of what its op waits for, also through NoOps: gradients wait for groups of others. Terms of a sum that are added up on their
way to the join get new ops for that, beside the parts. What nobody reads any more takes no time.

What a list of splits adds is drafted here and put together with the prepared arrays in `split_tables`. It knows no algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from stepd.core.errors import StrategyError
from stepd.core.placement.split_inputs import equal_reads, is_at_hand
from stepd.core.placement.split_sums import added_up
from stepd.core.placement.split_tables import CUT, PART, WHOLE, Additions, Edges, edges_of, with_additions
from stepd.core.prepared import Prepared, prepare
from stepd.core.problem import CONTROL, Float, Int, Problem, SplitChoice
from stepd.core.strategy import Split


@dataclass(frozen=True)
class SplitCosts:
    """What a part, a cut and a join cost beyond their share: a kernel launch, and moving bytes within a device's memory."""

    overhead_seconds: float = 5e-6
    copy_bytes_per_second: float = 1e11


@dataclass(frozen=True, eq=False)
class Splittable:
    """What does not depend on the splits: computed once for a problem. `live`: priorities are kept as a runtime keeps them, which
    holds nothing back that costs little (core/enforced.py); else all of them are."""

    problem: Problem
    prepared: Prepared
    choices: dict[tuple[int, str], SplitChoice]
    inputs: dict[int, tuple[int, ...]]  # op with choices -> the data outputs that it reads, in the order of its edges
    edges: Edges
    at_hand: frozenset[int]  # outputs that parts need not be sent: small constants, and what is computed before steps begin
    sent_as: dict[int, int]  # reads of a variable -> the read of the same that parts are sent in its place
    live: bool = False


@dataclass(frozen=True, eq=False)
class SplitProblem:
    """The arrays of the split problem. Ops 0..n-1 are the ops of the original problem, in their places."""

    prepared: Prepared
    n_original: int
    splits: tuple[Split, ...]
    parts: tuple[tuple[int, ...], ...]  # per split, the ops that are its parts
    origin: Int  # [n'] original op that an op belongs to: of a part or a cut, the split op
    kind: Int  # [n'] CUT, PART, SUM (of some of the terms) or WHOLE (a join, or an op that is not split)


def splittable(problem: Problem, live: bool = False) -> Splittable:
    """Look up what the splits of `problem` will need. `live`: see Splittable."""
    prepared = prepare(problem)
    tables = prepared.tables
    choices = {(choice.op, choice.axis): choice for choice in problem.split_choices}
    number = {(int(op), int(index)): o for o, (op, index) in enumerate(zip(tables.output_op, prepared.output_index, strict=True))}
    able = np.zeros(problem.n_ops, dtype=bool)
    able[[choice.op for choice in problem.split_choices]] = True
    read: dict[int, dict[int, None]] = {choice.op: {} for choice in problem.split_choices}
    for edge in np.flatnonzero(able[problem.edge_dst] & (problem.edge_output != CONTROL)):
        output = number[int(problem.edge_src[edge]), int(problem.edge_output[edge])]
        read[int(problem.edge_dst[edge])][output] = None
    inputs = {op: tuple(outputs) for op, outputs in read.items()}
    whole = sorted({output for outputs in inputs.values() for output in outputs})
    at_hand = frozenset(output for output in whole if is_at_hand(problem, prepared, output))
    sent_as = equal_reads(problem, prepared, whole)
    return Splittable(problem, prepared, choices, inputs, edges_of(tables), at_hand, sent_as, live)


def split_problem(base: Splittable, splits: Sequence[Split], costs: SplitCosts) -> SplitProblem:
    """The problem with `splits` carried out. Raises StrategyError for a split that the problem does not offer."""
    draft = _Draft(base, costs)
    for split in splits:
        draft.add_parts(split)
    for split in splits:
        draft.connect_inputs(split)
    draft.drop_idle_groups()
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
    added: Additions = field(default_factory=Additions)
    parts: dict[int, list[int]] = field(default_factory=dict)
    by_op: dict[int, Split] = field(default_factory=dict)
    part_output: dict[tuple[int, int], int] = field(default_factory=dict)  # (part, output index) -> output
    cuts: dict[tuple[int, tuple[float, ...]], list[int]] = field(default_factory=dict)
    cancelled: dict[int, int] = field(default_factory=dict)  # output -> readers that take parts instead
    origin: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    groups: dict[int, None] = field(default_factory=dict)  # NoOps that parts wait through, in the order of their finding

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
            seconds = tables.seconds[split.op] * (share * choice.dearer) + self.costs.overhead_seconds
            whole = sum(self._joined(choice, o) for o in range(first, last)) if choice.adds else 0
            part = self.new_op(seconds, int(tables.temp[split.op] * share) + int(whole * (1 - share)), -1, split.op, PART)
            self.parts[split.op].append(part)
            for o in range(first, last):
                index = int(self.base.prepared.output_index[o])
                size = self._joined(choice, o) * (1.0 if choice.adds else share)
                self.part_output[part, index] = self.new_output(part, index, int(size))
            if (part, CONTROL) not in self.part_output:
                self.part_output[part, CONTROL] = self.new_output(part, CONTROL, 0)

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
        sent: dict[int, None] = {}
        for edge in self._edges_into(op):
            o = int(self.base.edges.output[edge])
            self.added.dropped.append(edge)
            producer = int(tables.output_op[o])
            if int(self.base.prepared.output_index[o]) == CONTROL:
                self.cancelled[o] = self.cancelled.get(o, 0) + 1
                for k, part in enumerate(self.parts[op]):
                    self.added.edges.extend((awaited, part) for awaited in self._awaited(o, k, split.parts))
                continue
            if cut_bytes.get(o, 0) < 0 and not self._hands_on_terms(producer, split):
                name, source = self.base.problem.op_names[op], self.base.problem.op_names[producer]
                raise StrategyError(f"op {name!r} cannot be split on {split.axis!r}: {source!r} is not split into terms alike")
            if not cut_bytes.get(o, 0):
                sent |= {} if o in self.base.at_hand else {self.base.sent_as.get(o, o): None}
            elif cut_bytes[o] < 0 or self._cancels(producer, split):
                self.cancelled[o] = self.cancelled.get(o, 0) + 1
                index = int(self.base.prepared.output_index[o])
                pairs = zip(self.parts[producer], self.parts[op], strict=True)
                self.added.edges.extend((self.part_output[source, index], part) for source, part in pairs)
            else:
                self.added.edges.extend(zip(self._cut(o, cut_bytes[o], split), self.parts[op], strict=True))
        self.added.edges.extend((o, part) for o in sent for part in self.parts[op])

    def _awaited(self, o: int, k: int, parts: int) -> set[int]:
        """The outputs that part `k` waits for in place of control output `o`."""
        tables = self.base.prepared.tables
        producer = int(tables.output_op[o])
        if len(self.parts.get(producer, ())) == parts:
            return {self.part_output[self.parts[producer][k], CONTROL]}
        if self.base.problem.op_types[producer] != "NoOp":
            return {o}
        self.groups[producer] = None
        inner = tables.input[tables.input_pointer[producer] : tables.input_pointer[producer + 1]]
        return {awaited for i in inner for awaited in self._awaited(int(i), k, parts)} or {o}

    def drop_idle_groups(self) -> None:
        """NoOps that nobody waits for any more are not run."""
        tables = self.base.prepared.tables
        if not self.groups:
            return
        waited = np.zeros(len(tables.temp), dtype=bool)
        waited[list(self.groups)] = True
        for producer in tables.topological[waited[tables.topological]][::-1]:
            made = range(tables.output_pointer[producer], tables.output_pointer[producer + 1])
            if all(self._is_idle(o) for o in made):
                for edge in self._edges_into(int(producer)):
                    o = int(self.base.edges.output[edge])
                    self.added.dropped.append(edge)
                    self.cancelled[o] = self.cancelled.get(o, 0) + 1

    def _is_idle(self, o: int) -> bool:
        """Whether all who read an output read parts of it instead."""
        tables = self.base.prepared.tables
        return bool(self.cancelled.get(o, 0) == tables.reader_pointer[o + 1] - tables.reader_pointer[o])

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
            cut = self.new_op(self.copy_seconds(nbytes), nbytes, group, split.op, CUT)
            self.added.edges.append((o, cut))
            self.cuts[key] = [self.new_output(cut, k, int(nbytes * share)) for k, share in enumerate(shares(split))]
        return self.cuts[key]

    def join(self, split: Split) -> None:
        """Turn the op itself into the join of its parts."""
        tables, op = self.base.prepared.tables, split.op
        choice = self.base.choices[op, split.axis]
        moved, held, joins, made = 0, 0, False, range(tables.output_pointer[op], tables.output_pointer[op + 1])
        for o in made:
            index = int(self.base.prepared.output_index[o])
            if index == CONTROL or self._is_idle(o):
                continue
            terms = [self.part_output[part, index] for part in self.parts[op]]
            whole, joins = self._joined(choice, o), True
            terms, count = added_up(self, split, terms, whole) if choice.adds else (terms, 1)
            moved += whole * count
            held += whole if count else 0
            self.added.edges.extend((term, op) for term in terms)
        if not joins and (not made or not all(self._is_idle(o) for o in made)):
            self.added.edges.extend((self.part_output[part, CONTROL], op) for part in self.parts[op])
        runs = np.isfinite(tables.seconds[op])
        seconds = np.where(runs, self.copy_seconds(moved) if moved else 0.0, np.inf)
        self.added.changed[op] = (seconds, held)

    def copy_seconds(self, nbytes: int) -> Float:
        """Seconds of a cut or a join that moves so many bytes, on each device."""
        devices = len(self.base.prepared.tables.memory)
        return np.full(devices, self.costs.overhead_seconds + nbytes / self.costs.copy_bytes_per_second)

    def new_op(self, seconds: Float, temp: int, group: int, origin: int, kind: int) -> int:
        """The number of a new op; group -1: one of its own."""
        self.added.seconds.append(seconds)
        self.added.temp.append(temp)
        self.added.group.append(group)
        self.origin.append(origin)
        self.kind.append(kind)
        return self.base.problem.n_ops + len(self.added.seconds) - 1

    def new_output(self, op: int, index: int, nbytes: int) -> int:
        """The number of a new output, of a new op."""
        self.added.outputs.append((op, index, nbytes))
        return len(self.base.prepared.tables.output_op) + len(self.added.outputs) - 1

    def finished(self, splits: tuple[Split, ...]) -> SplitProblem:
        """Put base and additions together."""
        base, n = self.base.prepared, self.base.problem.n_ops
        prepared = with_additions(base, self.base.edges, self.added)
        origin = np.concatenate([np.arange(n), np.array(self.origin, dtype=np.int64)])
        kind = np.concatenate([np.full(n, WHOLE), np.array(self.kind, dtype=np.int64)])
        assert len(prepared.tables.topological) == len(origin) >= len(base.tables.topological)
        parts = tuple(tuple(self.parts[split.op]) for split in splits)
        return SplitProblem(prepared, n, splits, parts, origin, kind)
