"""Which ops may be copied, which may move, and why the others may not.

Pure: GraphView in, verdicts out (docs/design.md, "What may move"). It must not know sessions or strategies.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import versions

from stepd.hook.engine import calls, graphview, groups, made_once, op_defs, owned, remaking, rules
from stepd.hook.engine.dead_loops import dead_loop
from stepd.hook.engine.graphview import GraphView, Node

# What `tf.xla.experimental.compile` and rewriting for TPUs write on every op of a computation. TensorFlow makes one op of all ops
# of the graph that bear one value, those of copies too, and functions of all its loops.
_COMPUTATIONS = ("_xla_compile_id", "_tpu_replicate", "_replication_info")
# There one op that XLA is asked to compile lets it compile all of the graph (2.12; not 2.15; 2.13 and 2.14 not looked at).
_SPREADING = ("2.12.", "2.13.", "2.14.")
_shared: weakref.WeakKeyDictionary[GraphView, dict[str, str]] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Classes:
    """`held`: ops that every copy shares with the original, with all that they need; value: why.

    `pinned`: op -> why it cannot be put elsewhere (held ones included). `groups`: sets of two or more ops that move
    together; every op of a group with a pinned member is pinned. `variables`: sources of variables that may move.
    `apart`: why no step may run on anything but the program's own ops; "" where steps may.
    """

    held: dict[str, str]
    pinned: dict[str, str]
    groups: tuple[tuple[str, ...], ...]
    group_of: dict[str, int]
    variables: frozenset[str]
    apart: str = ""


def classify(
    view: GraphView,
    shared_variables: bool = False,
    tied: Mapping[str, str] | None = None,
    home: Callable[[Node], str] = lambda _: "",
) -> Classes:
    """`shared_variables`: other sessions see this one's variables (a server's), so that they must stay.

    `tied`: ops that must stay for reasons outside the graph, and why. `home`: the device of an op in the program's own graph.
    """
    sources = {node.name: why for node in view.nodes.values() if (why := shared_reason(view, node))}
    sources |= dict.fromkeys(remaking.reads_files_once(view), "makes a data set of what was read once")
    variables = {name for name in sources if view.nodes[name].op in rules.VARIABLES}
    held = _held(view, sources)
    pinned = {**(tied or {}), **_compiled(view), **held}
    for node in view.nodes.values():
        if node.name in variables:
            continue
        why = _pin_reason(node)
        if why and node.name not in pinned:
            pinned[node.name] = why
    alike = _of_one_name(view)
    for name in variables - pinned.keys():
        why = "shared with other sessions" if shared_variables else alike.get(name) or _variable_pin_reason(view, view.nodes[name])
        if why:
            pinned[name] = why
    together, spread = groups.of(view, home)
    pinned = {**spread, **pinned}
    _pin_groups(view, together, pinned)
    group_of = {name: i for i, group in enumerate(together) for name in group}
    apart = next((why for node in view.nodes.values() if (why := _computation(node) or calls.draws_apart(view, node.proto))), "")
    apart = apart or calls.draws_by_number(view) or dead_loop(view) or made_once.reads_once(view)
    if not apart and (name := owned.written_in_place(view)):
        apart = f"{name} writes into the memory of what it is given"
    return Classes(held, pinned, together, group_of, frozenset(variables - pinned.keys()), apart)


def _held(view: GraphView, sources: dict[str, str]) -> dict[str, str]:
    """Shared ops and everything that they need. Variables count as held only when a held op reads them."""
    held: dict[str, str] = {}
    for name, why in sources.items():
        if view.nodes[name].op not in rules.VARIABLES:
            held[name] = why
    stack = list(held)
    while stack:
        needed_by = stack.pop()
        for source, _ in view.nodes[needed_by].inputs:
            if source not in held:
                held[source] = f"needed by {needed_by}, which stays"
                stack.append(source)
    return held


def shared_reason(view: GraphView, node: Node) -> str:
    """Why copies must share this op with the original; "" when a second one does no harm."""
    known = _shared.setdefault(view, {})
    if node.name not in known:
        known[node.name] = _shared_reason(node.proto, view.bodies)
    return known[node.name]


def state_inside(inner: Any) -> str:
    """Why an op of a function, which calls none itself, has one state; else ""."""
    return _shared_reason(inner, lambda _: [])


def _shared_reason(node: Any, bodies: Callable[[Any], list[Any]]) -> str:
    op, named = node.op, op_defs.op_def(node.op) is not None  # a function that is called may be named like anything
    if named and op.startswith(rules.PER_RUN_PREFIXES):
        return ""
    if named and (op in rules.SHARED or op.startswith(rules.SHARED_PREFIXES)):
        return f"{op} has one state"
    if named and "Dataset" in op and op not in ("MakeIterator", "DatasetToSingleElement"):
        return ""
    if named and op == "Print" and node.attr["first_n"].i >= 0:
        return "counts how often it has printed"
    called = bodies(node)
    for body in called:
        for inner in body.node_def:
            calls_none = not op_defs.function_attrs(inner.op) or inner.op in rules.SHARED
            if calls_none and op_defs.op_def(inner.op) is not None:
                why = state_inside(inner)
                if why and inner.op not in rules.VARIABLES:
                    return f"calls {body.signature.name}, where {inner.name} stays: {why}"
    if called or op in rules.WITHOUT_MEMORY or not op_defs.is_stateful(op):
        return ""
    if any(op_defs.holds_state(t) for t in op_defs.input_types(node)):
        return ""
    if any(op_defs.holds_state(t) for t in op_defs.output_types(node)):
        return f"{op} owns state"
    if "seed" in node.attr or "seed2" in node.attr:
        if node.attr["seed"].i or node.attr["seed2"].i:
            return "draws from a seeded random stream"
        return f"{op} learns from what it is given" if op in rules.LEARNING else ""
    return f"{op} is stateful and not known"


def _compiled(view: GraphView) -> dict[str, str]:
    """Ops that the program asks XLA to compile, in clusters that round otherwise when they are cut otherwise; and who is given
    their values, through what only hands them on: such an op elsewhere cuts a cluster, and a sum begins with another term."""
    found = {node.name: "XLA compiles it with its neighbours" for node in view.nodes.values() if _asks_for_xla(node)}
    given = list(found)
    for name in given:  # it grows
        for user in graphview.takers(view, name):
            if user not in found:
                found[user] = f"is given what XLA compiles in {name}"
                given += [user] if view.nodes[user].op == "Identity" else []
    return found


def _computation(node: Node) -> str:
    """Why steps must keep to the program's own ops where this one is part of a computation that is compiled as a whole."""
    name = next((key for key in _COMPUTATIONS if key in node.proto.attr), "")
    if name:
        return f"{node.name} is part of a computation that XLA compiles as a whole ({name})"
    if _asks_for_xla(node) and versions.VERSION.startswith(_SPREADING):
        return f"XLA compiles {node.name} and, in TensorFlow {versions.VERSION}, with it whatever else it can"
    return ""


def _asks_for_xla(node: Node) -> bool:
    return "_XlaCompile" in node.proto.attr and node.proto.attr["_XlaCompile"].b


def _pin_reason(node: Node) -> str:
    """Why this op, taken alone, must stay on its device. Ops that work on a variable follow it and are not pinned."""
    proto, op = node.proto, node.op
    if rules.works_on_variable(op):
        return ""
    if op in rules.CONTROL_FLOW:
        return "control flow"
    if op_defs.op_def(op) is None or op_defs.function_attrs(op):
        return "calls a function"
    if op in rules.UNMOVED:
        return f"{op} stays"
    if op_defs.handles_state(proto):
        return "handles state"
    if op_defs.is_stateful(op) and not ("seed" in proto.attr or "seed2" in proto.attr):
        return "stateful"
    return ""


def _variable_pin_reason(view: GraphView, node: Node) -> str:
    """A variable moves only when every user of its handle is an op that works on it in place."""
    if node.proto.attr["dtype"].type in (types_pb2.DT_VARIANT, types_pb2.DT_RESOURCE):
        return "variable of handles"
    if node.proto.attr["shared_name"].s.startswith(b"cd2c89b7-88b7-44c8-ad83-06c2a9158347"):
        return "anonymous variable"
    for name in view.consumers[node.name]:
        user = view.nodes[name]
        types = op_defs.input_types(user.proto)
        data = [i for i, (source, k) in enumerate(user.inputs) if k >= 0]
        for i in data:
            if user.inputs[i][0] == node.name and (i >= len(types) or op_defs.holds_state(types[i])):
                if not rules.works_on_variable(user.op):
                    return f"its handle goes to {user.name} ({user.op})"
                if any(op_defs.is_ref(t) for t in op_defs.output_types(user.proto)):
                    why = _ref_chain_reason(view, user)
                    if why:
                        return why
    return ""


def _of_one_name(view: GraphView) -> dict[str, str]:
    """Ops that stand for a variable that another op stands for as well, since both say its name (of a graph that is imported beside
    itself, say), and why they stay: one that moved would leave the other behind."""
    alike: dict[tuple[bytes, bytes], list[str]] = {}
    for node in view.nodes.values():
        if node.op in rules.VARIABLES:
            alike.setdefault(graphview.name_of_state(node.proto), []).append(node.name)
    for function in view.functions.values():
        for inner in function.node_def:
            if inner.op in rules.VARIABLES and (names := alike.get(graphview.name_of_state(inner))):
                names.append(f"{inner.name} of {function.signature.name}")
    return {name: f"{names[0]} and {names[1]} are one variable" for names in alike.values() if len(names) > 1 for name in names}


def _ref_chain_reason(view: GraphView, node: Node) -> str:
    """The reference that Assign and its like hand on may be worked on further, and read, but not kept elsewhere."""
    for name in view.consumers[node.name]:
        user = view.nodes[name]
        types = op_defs.input_types(user.proto)
        for i, (source, k) in enumerate(user.inputs):
            if source == node.name and k >= 0 and (i >= len(types) or op_defs.is_ref(types[i])):
                if not rules.works_on_variable(user.op):
                    return f"its reference goes to {user.name} ({user.op})"
                if any(op_defs.is_ref(t) for t in op_defs.output_types(user.proto)):
                    why = _ref_chain_reason(view, user)
                    if why:
                        return why
    return ""


def _pin_groups(view: GraphView, together: tuple[tuple[str, ...], ...], pinned: dict[str, str]) -> None:
    for group in together:
        anchor = next((name for name in group if name in pinned), None)
        if anchor is not None:
            for name in group:
                pinned.setdefault(name, f"stays with {anchor}: {pinned[anchor]}")
    alone = {name for group in together for name in group}
    for name, node in view.nodes.items():
        if name not in alone and rules.works_on_variable(node.op):
            pinned.setdefault(name, "handles state")
