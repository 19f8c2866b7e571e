"""Where TensorFlow has an op of the program, as far as graph and devices say. Pure."""

from __future__ import annotations

import weakref

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.graphview import GraphView, Node

_asking: weakref.WeakKeyDictionary[GraphView, dict[str, str]] = weakref.WeakKeyDictionary()


def home(view: GraphView, devices: Devices, node: Node) -> str:
    """The op's device before any strategy: what it asks for, else what one of its company asks for.

    A variable's company are the ops that work on it and its optimizer's slots, which are where the optimizer was made: an op
    without a device that works on a variable runs where the variable is, whatever device has the lowest number.
    """
    if not node.device:
        node = view.nodes[_company(view).get(node.name, node.name)]
    return devices.home(node)


def _company(view: GraphView) -> dict[str, str]:
    """Op without a device -> the first op with one that it is colocated with, by request or because of a variable's memory."""
    found = _asking.get(view)
    if found is None:
        union = graphview.Union()
        for node in view.nodes.values():
            company = graphview.colocated_with(node.proto)
            if rules.works_on_variable(node.op) and node.inputs:
                company.append(node.inputs[0][0])
            for other in company:
                if other != node.name and other in view.nodes:
                    union.join(node.name, other)
        found = _asking[view] = {}
        for names in union.sets():
            asking = next((name for name in names if view.nodes[name].device), None)
            found |= {name: asking for name in names if asking is not None}
    return found
