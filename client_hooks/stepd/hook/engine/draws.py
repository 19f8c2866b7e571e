"""Seeded random ops whose streams a new session can be brought to: by drawing from them as often as the old one did. Pure.

A random kernel keeps the place in its stream to itself. How far it is depends only on how often it ran, when nothing that it needs
can change; so it is with the seeded initializers of variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tensorflow.core.framework import types_pb2

from stepd.hook.arrays import array_of
from stepd.hook.engine import op_defs, rules
from stepd.hook.engine.graphview import GraphView, Node, split_input
from stepd.hook.order.steps import executed, left_open
from stepd.hook.ports import StepKind

# Drawing again takes the time of the first draws; those of a training loop are too many...
_MOST_DRAWS = 16
# ...unless many are made as one. Philox streams go on by 256 times the number of values, whatever the shape (TensorFlow's
# core/kernels/random_op.cc); 10^8 values take about 2.5 s of a core.
_IN_BULK = frozenset({"RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal"})
_MOST_VALUES = 1 << 28


@dataclass(frozen=True)
class History:
    """What ran in a session: how often each kind did, and kinds that ran an unknown number of times, or failed."""

    runs: Mapping[StepKind, int]
    uncertain: Iterable[StepKind] = ()


def replayable(view: GraphView, history: History | None) -> dict[str, int]:
    """Seeded random op -> how often it has drawn, for those where this is known and says where the stream is."""
    if history is None:
        return {}
    candidates = {node.name for node in view.nodes.values() if is_seeded(node.proto) and _draws_alike(view, node, history)}
    for kind in history.uncertain:
        candidates -= executed(view, kind)
    for kind in history.runs:
        candidates -= left_open(view, kind)
    counts = dict.fromkeys(candidates, 0)
    for kind, runs in history.runs.items():
        for name in candidates & executed(view, kind):
            counts[name] += runs
    return {name: count for name, count in counts.items() if _can_repeat(view, name, count)}


def _can_repeat(view: GraphView, name: str, count: int) -> bool:
    size = drawn_at_once(view, view.nodes[name])
    return count <= _MOST_DRAWS if size is None else count * size <= _MOST_VALUES


def drawn_at_once(view: GraphView, node: Node) -> int | None:
    """How many values each run of a random op draws, for those of which one run can stand for many; None for the others."""
    if node.op not in _IN_BULK:
        return None
    source, index = node.inputs[0]
    shape = view.nodes[source]
    if shape.op != "Const" or index != 0:
        return None
    return int(np.prod(array_of(shape.proto.attr["value"].tensor), dtype=np.int64))


def shape_is_long(node: Node) -> bool:
    """Is the shape that a random op takes given in 64 bits?"""
    return bool(node.proto.attr["T"].type == types_pb2.DT_INT64)


def is_seeded(proto: Any) -> bool:
    """Does this op, in the graph or in a function, draw from a stream that a seed fixes? A call of a function does not itself."""
    seeded = any(key in proto.attr and proto.attr[key].i for key in ("seed", "seed2"))
    return seeded and op_defs.op_def(proto.op) is not None and op_defs.is_stateful(proto.op)


def _draws_alike(view: GraphView, node: Node, history: History) -> bool:
    """Does every run of this op draw the same number of values?"""
    needed = view.ancestors([node.name]) - {node.name}
    fed = {split_input(name)[0] for kind in (*history.runs, *history.uncertain) for name in kind.feeds}
    ops = {view.nodes[name].op for name in needed}
    changing = any(not op_defs.is_pure(op) or op in rules.CONTROL_FLOW or op.startswith("Placeholder") for op in ops)
    called = op_defs.function_attrs(node.op) or op_defs.holds_state(max(view.outputs(node.name), default=0))
    # An op that is fed does not run, unless perhaps others wait for it.
    waited_for = any((node.name, -1) in view.nodes[user].inputs for user in view.consumers[node.name])
    unsure = needed | {node.name} if waited_for else needed
    return not changing and not called and fed.isdisjoint(unsure)
