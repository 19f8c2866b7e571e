"""What parts of split ops need not be sent, or are sent once: as the hook rewrites graphs, so that predictions hold.

It knows no splits.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepd.core.prepared import Prepared
from stepd.core.problem import Problem

LARGEST_CONSTANT = 1 << 16
"""Bytes of a constant that the hook makes anew on every device that has a part that needs it."""


def is_at_hand(problem: Problem, prepared: Prepared, output: int) -> bool:
    """A data output of 0 bytes was never seen in a step: it is folded into a constant."""
    nbytes = int(prepared.tables.output_bytes[output])
    return not nbytes or (nbytes <= LARGEST_CONSTANT and problem.op_types[prepared.tables.output_op[output]] == "Const")


def equal_reads(problem: Problem, prepared: Prepared, outputs: Sequence[int]) -> dict[int, int]:
    """Of every read of a variable among `outputs`, the first by name of those that read and wait for the same."""
    tables = prepared.tables
    first: dict[tuple[int, ...], int] = {}
    found: dict[int, int] = {}
    reads = [o for o in outputs if problem.op_types[tables.output_op[o]] == "ReadVariableOp"]
    for output in sorted(reads, key=lambda o: problem.op_names[tables.output_op[o]]):
        op = tables.output_op[output]
        read = tuple(sorted(tables.input[tables.input_pointer[op] : tables.input_pointer[op + 1]].tolist()))
        found[output] = first.setdefault(read, output) if read else output
    return found
