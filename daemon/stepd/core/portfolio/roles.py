"""What an op of a training graph is for: the forward pass, gradients that are passed on, or the gradient of one variable alone.

An expert who places layers keeps all of a layer together; but what only updates a layer's own weights keeps nobody waiting, and
may run elsewhere or later. Neither names nor types are looked at, only which updates an op's outputs reach. It knows no devices.
"""

from __future__ import annotations

import numpy as np

from stepd.core.prepared import Prepared
from stepd.core.problem import Index

FORWARD, BACKWARD, OWN = range(3)
"""Reaches the updates of all weights (as far as told apart); of some; of one group of weights alone."""
NOWHERE, SEVERAL = -1, -2
BITS = 63
"""Groups of weights are told apart by so many bits: the largest ones in full."""


def roles(prepared: Prepared) -> Index:
    """One of FORWARD, BACKWARD, OWN for each op, -1 where no update reads what it makes. int32 [n]."""
    tables = prepared.tables
    bits = _bits(prepared)
    resident = prepared.group_resident.tolist()
    group, output_op = tables.group.tolist(), tables.output_op.tolist()
    outputs, readers = tables.output_pointer.tolist(), tables.reader_pointer.tolist()
    inputs, read, reader = tables.input_pointer.tolist(), tables.input.tolist(), tables.reader.tolist()
    control = (prepared.output_index < 0).tolist()
    n = len(group)
    updates, reached = [NOWHERE] * n, [0] * n
    for op in tables.topological[::-1].tolist():
        only, mask = NOWHERE, 0
        for output in range(outputs[op], outputs[op + 1]):
            if control[output]:
                continue
            for other in reader[readers[output] : readers[output + 1]]:
                mask |= reached[other]
                if updates[other] != NOWHERE and only != updates[other]:
                    only = updates[other] if only == NOWHERE else SEVERAL
        own = group[op]
        if only == NOWHERE and resident[own] > 0:
            fed = (k for k in read[inputs[op] : inputs[op + 1]] if not control[k])
            if any(group[output_op[k]] != own for k in fed):  # the update of what is resident there
                only, mask = own, bits[own]
        updates[op], reached[op] = only, mask
    everything = 0
    for mask in reached:
        everything |= mask
    only_one, all_of_them = np.array(updates), np.array([mask == everything for mask in reached])
    role = np.full(n, -1, dtype=np.int32)
    role[only_one >= 0] = OWN
    role[only_one == SEVERAL] = BACKWARD
    role[(only_one == SEVERAL) & all_of_them] = FORWARD
    return role


def _bits(prepared: Prepared) -> list[int]:
    """A bit for each group with something resident, shared by the smaller ones where there are many."""
    largest_first = np.argsort(-prepared.group_resident, kind="stable")
    bits = [0] * prepared.n_groups
    for k, group in enumerate(largest_first.tolist()):
        bits[group] = 1 << (k if k < BITS else BITS)
    return bits
