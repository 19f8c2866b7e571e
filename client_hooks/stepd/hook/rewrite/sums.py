"""NodeDefs that add up the terms of a sum by several devices, as `Split.into` says: all at once, a tree, or in slices.

The sum that begins with part k's own term is made on part k's device. Slices are rows of the flattened tensor, which TensorFlow
hands on without a copy. It knows nothing of graphs, nor of what is best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import dtypes

from stepd.hook.rewrite.nodes import Maker
from stepd.hook.rewrite.slots import Dim, Held, UncuttableError

Into = tuple[int, ...]
Dims = Sequence[Dim] | None
_ALIGNED = 64  # bytes: pieces of so many are handed on as they are


def slices_of(into: Into, parts: int) -> list[Into]:
    """The trees of `into`, one a slice; none when all terms go to the op itself. Raises UncuttableError for what is no tree."""
    if len(into) % parts or any(not 0 <= k < parts for k in into):
        raise UncuttableError(f"adding up a sum of {parts} terms takes {parts} numbers below {parts} for each slice, not {into}")
    trees = [into[k : k + parts] for k in range(0, len(into), parts)]
    for tree in trees:
        if len(inwards(tree)) < parts:
            raise UncuttableError(f"the terms of a sum go in a circle: {tree}")
    return trees


def inwards(tree: Into) -> list[int]:
    """The parts of one tree, each behind those that send to it."""
    order = [k for k, to in enumerate(tree) if to == k]
    for k in order:  # it grows
        order += [j for j, to in enumerate(tree) if to == k and j != k]
    return order[::-1]


def by_names(devices: Sequence[str]) -> Into:
    """A tree by what devices' names say of their places, where no planner knows links: within a device, a process, then all.

    Two terms that are left go to the op itself.
    """
    into = list(range(len(devices)))
    left = list(into)
    for place in (lambda k: devices[k], lambda k: _task(devices[k]), lambda k: ""):
        groups: dict[str, list[int]] = {}
        for k in left:
            groups.setdefault(place(k), []).append(k)
        while len(left) > 2 and any(len(group) > 1 for group in groups.values()):
            for group in groups.values():
                for kept, sent in zip(group[::2], group[1::2], strict=False):
                    into[sent] = kept
                del group[1::2]
            left = sorted(k for group in groups.values() for k in group)
    return tuple(into)


def add_up(make: Maker, final: str, terms: Sequence[str], devices: Sequence[str], into: Into, dtype: int, dims: Dims) -> None:
    """The sum of `terms`, of which one is on each of `devices`, as a node called `final`. `make`: makes nodes where it is wanted.

    dims: of the sum, as far as they are known.
    """
    trees = slices_of(into, len(terms))
    if len(trees) <= 1:
        _added(make, "", _arrived(make, 0, trees[0], terms, devices, dtype) if trees else terms, dtype, final)
        return
    known = dims is not None and all(isinstance(d, int) for d in dims)
    elements = math.prod(d for d in dims or () if isinstance(d, int))
    width = max(1, _ALIGNED // dtypes.as_dtype(dtype).size)
    width = width if known and elements % width == 0 else 1
    pieces = []
    for k, (term, device) in enumerate(zip(terms, devices, strict=True)):
        near = make.beside(f"slices{k}", device)
        flat = near.reshaped("flat", term, near.constant("rows", np.array([-1, width], np.int32)), dtype)
        bounds = range(len(trees) + 1)
        pieces.append(near.cut(flat, dtype, Held("cut", 0, 1), bounds, elements // width if known else None))
    slices = []
    for number, tree in enumerate(trees):
        own = [piece[number] for piece in pieces]
        slices.append(_added(make, f"slice{number}", _arrived(make, number, tree, own, devices, dtype), dtype))
    together = make.concatenated("slices", slices, 0, dtype)
    if known:
        shape = make.constant("dims", np.array(dims, np.int32))
    else:
        shape = make.beside("slices0", devices[0]).node("dims", "Shape", [terms[0]], {"T": dtype, "out_type": types_pb2.DT_INT32})
    make.reshaped("", together, shape, dtype, final)


def _arrived(make: Maker, number: int, tree: Into, terms: Sequence[str], devices: Sequence[str], dtype: int) -> list[str]:
    """What a tree of sums brings to the op itself."""
    here = [[term] for term in terms]  # a part's own term first
    found = []
    for k in inwards(tree):
        total = _added(make.beside(f"sum{number}x{k}", devices[k]), "all", here[k], dtype)
        (found if tree[k] == k else here[tree[k]]).append(total)
    return found


def _added(make: Maker, what: str, terms: Sequence[str], dtype: int, name: str = "") -> str:
    if len(terms) > 1:
        return make.node(what, "AddN", terms, {"T": dtype, "N": len(terms)}, name)
    return make.node(what, "Identity", terms, {"T": dtype}, name) if name else terms[0]


def _task(device: str) -> str:
    """What a device's name says of its process."""
    return device.partition("/device:")[0]
