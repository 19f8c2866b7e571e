"""What TensorFlow's registry says of op types, and with it of NodeDefs: types, state, the functions that they call.

It must not know graphs, devices or sessions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

from tensorflow.core.framework import node_def_pb2, types_pb2
from tensorflow.python.framework import op_def_registry

_REF = 100  # DataType numbers of reference types begin here


@functools.cache
def op_def(op: str) -> Any:
    """The OpDef of an op type; None for a function name or an op that is not registered."""
    return op_def_registry.get(op)


@functools.cache
def is_stateful(op: str) -> bool:
    known = op_def(op)
    return known is None or known.is_stateful


@functools.cache
def function_attrs(op: str) -> tuple[str, ...] | None:
    """Names of the attributes of an op type that hold functions; None for an op that is not registered."""
    known = op_def(op)
    return None if known is None else tuple(a.name for a in known.attr if a.type in ("func", "list(func)"))


@functools.cache
def is_pure(op: str) -> bool:
    """Is what an op of this type makes made of nothing but its inputs and attributes, by no function?"""
    return not is_stateful(op) and not function_attrs(op)


def called(node: node_def_pb2.NodeDef) -> Iterator[str]:
    """Names of the functions that a node calls."""
    attrs = function_attrs(node.op)
    if attrs is None:
        yield node.op
        return
    for name in attrs:
        value = node.attr[name]
        if value.HasField("func"):
            yield value.func.name
        for function in value.list.func:
            yield function.name
    if node.op == "SymbolicGradient":
        yield node.attr["f"].func.name


class _Arg(NamedTuple):
    """An argument of an op type: its type, or the attributes that say it. An OpDef itself answers much more slowly."""

    type: int
    type_attr: str
    list_attr: str
    number_attr: str
    ref: int


@functools.cache
def _args(op: str, outputs: bool) -> tuple[tuple[_Arg, ...], tuple[int, ...] | None]:
    """The arguments of an op type; and their types, where these depend on no attribute."""
    known = op_def(op)
    if known is None:
        return (), ()
    args = tuple(
        _Arg(a.type, a.type_attr, a.type_list_attr, a.number_attr, _REF if a.is_ref else 0)
        for a in (known.output_arg if outputs else known.input_arg)
    )
    free = any(a.type_attr or a.list_attr or a.number_attr for a in args)
    return args, None if free else tuple(a.type + a.ref for a in args)


def _types(node: Any, outputs: bool) -> tuple[int, ...]:
    args, fixed = _args(node.op, outputs)
    if fixed is not None:
        return fixed
    types: list[int] = []
    attr = node.attr
    for one, type_attr, list_attr, number_attr, ref in args:
        if list_attr:
            types += [dtype + ref for dtype in attr[list_attr].list.type]
        else:
            dtype = (one or attr[type_attr].type) + ref
            types += [dtype] * attr[number_attr].i if number_attr else (dtype,)
    return tuple(types)


def output_types(node: Any) -> tuple[int, ...]:
    return _types(node, True)


def input_types(node: Any) -> tuple[int, ...]:
    return _types(node, False)


def is_ref(dtype: int) -> bool:
    return dtype > _REF


def holds_state(dtype: int) -> bool:
    """References, resources and variants: values that stand for state somewhere."""
    return dtype > _REF or dtype in (types_pb2.DT_RESOURCE, types_pb2.DT_VARIANT)


@functools.cache
def may_hold_state(op: str) -> bool:
    """May an op of this type be given such a value, or give one? Most numeric ones may not."""
    known = op_def(op)
    if known is None:
        return False
    allowed = {attr.name: tuple(attr.allowed_values.list.type) for attr in known.attr}
    for arg in (*known.input_arg, *known.output_arg):
        types = (arg.type,) if arg.type else allowed[arg.type_list_attr or arg.type_attr]
        if arg.is_ref or not types or any(map(holds_state, types)):
            return True
    return False


def handles_state(node: Any) -> bool:
    """Is the op of a NodeDef given such a value, or does it give one?"""
    return may_hold_state(node.op) and any(map(holds_state, input_types(node) + output_types(node)))
