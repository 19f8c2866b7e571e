"""Where TensorFlow has an op of the program, and where a strategy may have it, as far as graph and devices say. Pure."""

from __future__ import annotations

import functools
import weakref
from dataclasses import dataclass, field

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.devices import Devices, parse
from stepd.hook.engine.graphview import GraphView, Node


@dataclass(frozen=True, eq=False)
class _Company:
    """Ops that TensorFlow has on one device. `asking`: the first of them that the program gave a device. `able`: types of device on
    which all of them have kernels, by the types of a session that has been looked at."""

    members: tuple[str, ...]
    asking: str | None
    able: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)


_known: weakref.WeakKeyDictionary[GraphView, dict[str, _Company]] = weakref.WeakKeyDictionary()


def home(view: GraphView, devices: Devices, node: Node) -> str:
    """The op's device before any strategy: what it asks for, else what one of its company asks for.

    A variable's company are the ops that work on it and its optimizer's slots, which are where the optimizer was made: an op
    without a device that works on a variable runs where the variable is, whatever device has the lowest number. A company is on
    a type of device on which all of it has kernels.
    """
    company = _company(view).get(node.name)
    if company is None:
        return devices.home(node)
    asking = node if node.device or company.asking is None else view.nodes[company.asking]
    if not devices.mixed:
        return devices.home(asking)
    able = company.able.get(devices.types)
    if able is None:
        each = (devices.able(view.nodes[name]) for name in company.members)
        able = company.able[devices.types] = functools.reduce(frozenset.intersection, each)
    return devices.home(asking, able)


def allowed(view: GraphView, devices: Devices, node: Node) -> tuple[str, ...]:
    """Devices that a strategy may put an op on: those of the type on which the program has it, since another one's kernels round
    otherwise. A constant is the same everywhere.
    """
    found = devices.allowed(node)
    if not devices.keep_types or node.op == "Const":
        return found
    kind = parse(home(view, devices, node)).type
    return tuple(name for name in found if parse(name).type == kind)


def _company(view: GraphView) -> dict[str, _Company]:
    """By op, those with which it is colocated, by request or because of a variable's memory; ops alone are not in it."""
    found = _known.get(view)
    if found is None:
        union = graphview.Union()
        for node in view.nodes.values():
            company = graphview.colocated_with(node.proto)
            if rules.works_on_variable(node.op) and node.inputs:
                company.append(node.inputs[0][0])
            for other in company:
                if other != node.name and other in view.nodes:
                    union.join(node.name, other)
        found = _known[view] = {}
        for names in union.sets():
            company_of = _Company(tuple(names), next((name for name in names if view.nodes[name].device), None))
            found |= dict.fromkeys(names, company_of)
    return found
