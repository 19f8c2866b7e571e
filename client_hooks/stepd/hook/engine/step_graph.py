"""The part of a graph that a step needs, as Grappler is to see it. It must not know copies, devices or what Grappler does."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from tensorflow.core.framework import graph_pb2, node_def_pb2
from tensorflow.python.framework import dtypes

from stepd.hook.engine import op_defs
from stepd.hook.engine.graphview import split_input

# Of a feed, of which Grappler makes an example.
_MOST_BYTES = 128 << 20
_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2"})
_MADE_UP = _PLACEHOLDERS | {"PlaceholderWithDefault"}
# Of what is fed. TensorFlow ends the process where it cannot make an example of a type.
_FED = frozenset(dtypes.as_dtype(name).as_datatype_enum for name in (
    "bool", "string", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
))  # fmt: skip
_BESIDE = re.compile(r"-fed\d+$")

Place = tuple[str, int]  # (op, index of its output)


class StepGraph(NamedTuple):
    """`ends`: the ops that Grappler is to keep; `stands_in`: fed output -> the placeholder in its place."""

    graph: graph_pb2.GraphDef
    ends: frozenset[str]
    stands_in: Mapping[Place, str]

    def place(self, asked: Place) -> Place:
        """Where the value of an output is."""
        name = self.stands_in.get(asked)
        return asked if name is None else (name, 0)


def of_op(name: str) -> str:
    """The op that is called `name`, or for an output of which this stands in."""
    return _BESIDE.sub("", name)


def with_stand_ins(user_name: Callable[[str], str]) -> Callable[[str], str]:
    """`user_name`, of ops, for what stands in for their outputs as well."""

    def name_of(name: str) -> str:
        op = of_op(name)
        return user_name(op) + name[len(op) :].removeprefix("-fed0")

    return name_of


def step_graph(
    graph: graph_pb2.GraphDef, fetches: Collection[Place], targets: Collection[str], fed: Collection[Place]
) -> StepGraph:
    """What of `graph` a step of these runs. What is fed is a placeholder, of whose value Grappler knows nothing: by the op's name,
    or beside the op if the step needs another of its outputs, or waits for it. Raises ValueError where Grappler cannot well make
    an example of a placeholder, as it does of each."""
    nodes = {node.name: node for node in graph.node}
    needed, used = set[str](), {place for place in fetches if place in fed}
    stack = [*targets, *(op for op, index in fetches if (op, index) not in fed)]
    while stack:
        name = stack.pop()
        if name in needed:
            continue
        needed.add(name)
        for place in map(split_input, nodes[name].input):
            if place in fed:
                used.add(place)
            elif place[1] < 0 and (place[0], 0) in fed and nodes[place[0]].op in _PLACEHOLDERS:
                used.add((place[0], 0))
            else:
                stack.append(place[0])
    beside = {(op, index) for op, index in used if index > 0 or op in needed}
    stands_in = {place: f"{place[0]}-fed{place[1]}" if place in beside else place[0] for place in sorted(used)}
    part = graph_pb2.GraphDef(versions=graph.versions, library=graph.library)
    of = itertools.groupby(stands_in.items(), lambda item: item[0][0])
    made = {op: [_stand_in(nodes[op], index, name) for (_, index), name in group] for op, group in of}
    for node in graph.node:  # in their order, in which Grappler goes through them
        if node.name in needed:
            one = part.node.add()
            one.CopyFrom(node)
            del one.input[:]
            one.input.extend(stands_in.get(split_input(name), name) for name in node.input)
        part.node.extend(made.get(node.name, ()))
    for node in part.node:
        _check_example(node)
    ends = {*targets, *(op for op, _ in fetches), *(op for op, _ in fed), *stands_in.values()}
    return StepGraph(part, frozenset(ends & {node.name for node in part.node}), stands_in)


def _stand_in(node: node_def_pb2.NodeDef, index: int, name: str) -> node_def_pb2.NodeDef:
    made = node_def_pb2.NodeDef(name=name, op="Placeholder", device=node.device)
    if node.op == "Placeholder":
        made.CopyFrom(node)
    else:
        made.attr["dtype"].type = op_defs.output_types(node)[index]
        made.attr["shape"].shape.unknown_rank = True
    return made


def _check_example(node: node_def_pb2.NodeDef) -> None:
    if node.op in _MADE_UP:
        dtype, dims = node.attr["dtype"].type, [max(dim.size, 1) for dim in node.attr["shape"].shape.dim]
        if dtype not in _FED or math.prod(dims) * dtypes.as_dtype(dtype).size > _MOST_BYTES:
            raise ValueError(f"{node.name} is a placeholder of type {dtype} and shape {dims}")
