"""What an uninitialized variable's error says of its container, where a switch has made that different from plain. Pure.

TensorFlow creates a container on a device with the first resource there, and words the error by whether the container exists.
A restart begins without containers, and a variable that moved is looked for on another device. The text is made what it would be
plainly: a container exists once an op has run that makes a resource in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from stepd.hook.engine.draws import History
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.op_defs import is_stateful
from stepd.hook.engine.state import may_have_run

_MISSING = re.compile(
    r"Container (\S+) does not exist\. \(Could not find resource: (\S+)\)"
    r"|Resource (([^/\s]+)/\S+)/N10tensorflow3VarE does not exist\."
)
_DEFAULT = "localhost"
# They call functions that a run may not have come to.
_MAY_LEAVE_OUT = frozenset({"Case", "If", "StatelessCase", "StatelessIf", "StatelessWhile", "While"})


def are_missing(text: str) -> bool:
    """Does `text` say of a container, or of a variable in one, that it does not exist?"""
    return _MISSING.search(text) is not None


def existing(view: GraphView, history: History, home: Callable[[Node], str]) -> set[tuple[str, str]]:
    """(device, container) in which an op that may have run has made a resource. `home`: where an op is plainly."""
    ran = (view.nodes[name] for name in may_have_run(view, history))
    return {(home(_lying(view, owner, node)), _container(owner)) for node in ran for owner in _owners(view, node)}


def places(view: GraphView, home: Callable[[Node], str]) -> dict[str, str]:
    """The device of each variable, by its container and name as errors tell them."""
    handles = (node for node in view.nodes.values() if node.op == "VarHandleOp")
    return {f"{_container(node.proto)}/{node.proto.attr['shared_name'].s.decode()}": home(node) for node in handles}


def repair(text: str, known: Collection[tuple[str, str]], device_of: Mapping[str, str]) -> str:
    """`text` as it is where the containers in `known` exist, and no others: the hook's own reads may have made one. `device_of`:
    `places`; what is not among them may be anywhere."""

    def plain(found: re.Match[str]) -> str:
        container, resource = (found[1], found[2]) if found[1] else (found[4], found[3])
        device = device_of.get(resource)
        if any(container == there and device in (None, where) for where, there in known):
            return f"Resource {resource}/N10tensorflow3VarE does not exist."
        return f"Container {container} does not exist. (Could not find resource: {resource})"

    return _MISSING.sub(plain, text)


def _owners(view: GraphView, node: Node) -> Iterator[Any]:
    """NodeDefs of the ops whose resources exist once `node` has run. A handle alone makes nothing, nor does any other write than an
    assignment, which fails where there is none. What is in a branch, or in a loop, may not have run.
    """
    if node.op == "AssignVariableOp":
        yield from _handles(view, node.inputs[:1])
    elif node.op not in _MAY_LEAVE_OUT:
        inside = [inner for body in view.bodies(node.proto) for inner in body.node_def]
        if any(inner.op == "AssignVariableOp" for inner in inside):
            yield from _handles(view, node.inputs)
        yield from (made for made in (node.proto, *inside) if _owns(made))


def _owns(node: Any) -> bool:
    return node.op != "VarHandleOp" and "container" in node.attr and is_stateful(node.op)


def _handles(view: GraphView, inputs: Iterable[tuple[str, int]]) -> Iterator[Any]:
    """The variables of which handles come in, also through what only hands them on."""
    for source, index in inputs:
        node = view.nodes[source]
        while node.op == "Identity":
            node = view.nodes[node.inputs[0][0]]
        if index >= 0 and node.op == "VarHandleOp":
            yield node.proto


def _lying(view: GraphView, owner: Any, caller: Node) -> Node:
    """The op of the graph of a NodeDef that is one, or is in a function that `caller` calls."""
    own = view.nodes.get(owner.name)
    return own if own is not None and own.proto is owner else caller


def _container(node: Any) -> str:
    return node.attr["container"].s.decode() or _DEFAULT
