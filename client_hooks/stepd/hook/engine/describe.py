"""What planners and operators are told about a graph: what may move, where, and what deserves a note. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from stepd.hook.engine import races
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.devices import Devices, kernel_types
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.settings import UserDevices
from stepd.hook.model import GraphDescription
from stepd.hook.ports import StepKind


def describe(
    view: GraphView,
    classes: Classes,
    devices: Devices,
    graph_def: bytes,
    kinds: Iterable[StepKind],
    user_devices: UserDevices,
    obstacles: tuple[str, ...],
) -> GraphDescription:
    """The whole description; slow for large graphs."""
    return GraphDescription(
        fingerprint=fingerprint(view),
        graph_def=graph_def,
        pinned=dict(classes.pinned),
        colocated=classes.groups,
        device_kinds=_device_kinds(view, devices),
        notes=(*_device_notes(view, user_devices), *races.notes(view, list(kinds))),
        restart_obstacles=obstacles,
        keeps_types=devices.keep_types,
    )


def fingerprint(view: GraphView) -> str:
    """sha256 over names, op types, inputs and requested devices, in order of name."""
    digest = hashlib.sha256()
    for name in sorted(view.nodes):
        node = view.nodes[name]
        inputs = ",".join(f"{source}:{index}" for source, index in node.inputs)
        digest.update(f"{name}\0{node.op}\0{inputs}\0{node.requested}\n".encode())
    return digest.hexdigest()


def _device_kinds(view: GraphView, devices: Devices) -> dict[str, tuple[str, ...]]:
    """Op types that not every device type of the session has a kernel for, and the types that have one."""
    types = frozenset(d.type for d in devices.usable)
    found: dict[str, tuple[str, ...]] = {}
    for node in view.nodes.values():
        have = kernel_types(node.op, node.proto, types)
        if len(have) < len(types):
            known = found.get(node.op)
            found[node.op] = tuple(sorted(have)) if known is None else tuple(t for t in known if t in have)
    return found


def _device_notes(view: GraphView, user_devices: UserDevices) -> list[str]:
    placed = sum(1 for node in view.nodes.values() if node.requested)
    if not placed:
        return []
    what = {
        "free": "job, task and type are kept, the index is free",
        "keep": "they are kept",
        "override": "they are ignored",
    }[user_devices]
    return [f"the program names devices for {placed} ops; {what} (STEPD_USER_DEVICES={user_devices})"]
