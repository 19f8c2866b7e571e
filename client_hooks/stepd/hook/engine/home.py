"""Where TensorFlow has an op of the program, as far as graph and devices say. Pure."""

from __future__ import annotations

from stepd.hook.engine import rules
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.graphview import GraphView, Node, colocated_with

_MOST_STEPS = 32


def home(view: GraphView, devices: Devices, node: Node) -> str:
    """The op's device before any strategy: what it asks for, else its variable's, else that of the op it is colocated with.

    An op without a device that works on a variable runs where the variable is, whatever device has the lowest number.
    """
    asked = node
    for _ in range(_MOST_STEPS):
        follows = _followed(view, node)
        if follows is None:
            break
        node = follows
        if node.device:
            return devices.home(node)
    return devices.home(asked)


def _followed(view: GraphView, node: Node) -> Node | None:
    if node.device:
        return None
    if rules.works_on_variable(node.op) and node.inputs:
        return view.nodes.get(node.inputs[0][0])
    company = colocated_with(node.proto)
    return view.nodes.get(company[0]) if company and company[0] != node.name else None
