"""What stands on a device for an op that others wait for and that a strategy has put elsewhere. Pure.

Grappler takes waits out that say nothing new, and NoOps between those who wait and whom they wait for, where all share a device:
gradients in a scope that waits for a normalization's updates are full of them. An op that still waits for something is left out of
what is joined. So who waits for an op that plainly lies beside it waits for one beside it in a copy, too. An op that Grappler takes
out of steps in which nobody needs its value (a loss that is not fetched, for which what is computed once more waits) has a stand-in
that goes with it. It must not know what is joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tensorflow.core.framework import node_def_pb2

from stepd.hook.engine import rules, twins
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.handing import nothing, unneeded, waited_for
from stepd.hook.engine.names import copy_name
from stepd.hook.engine.op_defs import is_ref, is_stateful

_NONE = rules.CONTROL_FLOW | {"NoOp", "Const", "ControlTrigger", "Placeholder"}


def put(
    view: GraphView,
    made: Mapping[str, node_def_pb2.NodeDef],
    represented: Callable[[str], str],
    mark: str,
    device: Callable[[str], str],
    home: Callable[[str], str],
) -> list[node_def_pb2.NodeDef]:
    """Have the copies `made` (user's op -> copy, changed in place) wait for stand-ins where they would wait for another device
    and plainly do not; returns these. `represented`: the copy's name for a user's op; `device`, `home`: where it is, is plainly."""
    one = twins.of(view).one  # of what Grappler makes one there is one here as well: it would not make one of these
    new: list[node_def_pb2.NodeDef] = []
    known: dict[tuple[str, str], str] = {}
    for name, node in made.items():
        if node.op == "NoOp":
            continue  # of these Grappler makes one of its own for each device
        for source, index in view.nodes[name].inputs:
            wait = f"^{represented(source)}"
            if index >= 0 or wait not in node.input or view.nodes[source].op in _NONE:
                continue
            if device(source) == device(name) or home(source) != home(name):
                continue
            key = one.get(source, source), device(name)
            if key not in known:
                known[key] = f"{copy_name(source, mark)}-there{len(known)}"
                if _may_go(view, source):
                    new.append(unneeded(known[key], wait.removeprefix("^"), view.outputs(source)[0], device(name)))
                else:
                    given = nothing(f"{known[key]}-given", device(name), wait)
                    new += [given, waited_for(known[key], given)]
            node.input[list(node.input).index(wait)] = f"^{known[key]}"
    return new


def _may_go(view: GraphView, name: str) -> bool:
    """Does Grappler take the op out of steps in which nobody needs its values? Who waits for it waits for its inputs then."""
    types = view.outputs(name)
    return not is_stateful(view.nodes[name].op) and bool(types) and not is_ref(types[0])
