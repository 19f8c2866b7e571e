"""What an uninitialized variable's error says of its container, where a switch has made that different from plain. Pure.

TensorFlow creates a container on a device with the first resource there, and words the error by whether the container exists.
A restart begins without containers, and a variable that moved is looked for on another device. The text is made what it would be
plainly: a container exists once an op has run that makes a resource in it.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from stepd.hook.engine import rules
from stepd.hook.engine.draws import History
from stepd.hook.engine.graphview import GraphView, Node, is_stateful
from stepd.hook.engine.races import is_write
from stepd.hook.engine.state import may_have_run

_MISSING = re.compile(
    r"Container (\S+) does not exist\. \(Could not find resource: (\S+)\)"
    r"|Resource (([^/\s]+)/\S+)/N10tensorflow3VarE does not exist\."
)
_DEFAULT = "localhost"


def are_missing(text: str) -> bool:
    """Does `text` say of a container, or of a variable in one, that it does not exist?"""
    return _MISSING.search(text) is not None


def existing(view: GraphView, history: History) -> set[str]:
    """Containers in which an op that may have run has made a resource."""
    ran = (view.nodes[name] for name in may_have_run(view, history))
    return {_container(owner) for node in ran if (owner := _owner(view, node)) is not None}


def repair(text: str, known: Collection[str]) -> str:
    """`text` as it is where the containers in `known` exist, and no others: the hook's own reads may have made one."""

    def plain(found: re.Match[str]) -> str:
        container, resource = (found[1], found[2]) if found[1] else (found[4], found[3])
        if container in known:
            return f"Resource {resource}/N10tensorflow3VarE does not exist."
        return f"Container {container} does not exist. (Could not find resource: {resource})"

    return _MISSING.sub(plain, text)


def _owner(view: GraphView, node: Node) -> Node | None:
    """The op whose resource exists once `node` has run; None when there is none. A handle alone makes nothing."""
    if is_write(node.op) and node.inputs:
        node = view.nodes[node.inputs[0][0]]
        return node if node.op in rules.VARIABLES else None
    return node if node.op != "VarHandleOp" and "container" in node.proto.attr and is_stateful(node.op) else None


def _container(node: Node) -> str:
    return node.proto.attr["container"].s.decode() or _DEFAULT
