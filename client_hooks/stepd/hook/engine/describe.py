"""What planners and operators are told about a graph: what may move, where, and what deserves a note. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from stepd.hook.engine import graphview, rules
from stepd.hook.engine.classify import Classes
from stepd.hook.engine.devices import Devices, kernel_types
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.settings import UserDevices
from stepd.hook.model import GraphDescription
from stepd.hook.ports import StepKind

_WRITES = ("Assign", "ResourceApply", "ResourceScatter", "ResourceSparseApply", "Apply", "Scatter", "SparseApply")


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
        notes=(*_device_notes(view, user_devices), *_race_notes(view, kinds)),
        restart_obstacles=obstacles,
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
            found[node.op] = have if known is None else tuple(t for t in known if t in have)
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


def _race_notes(view: GraphView, kinds: Iterable[StepKind]) -> list[str]:
    """Variables that one step both writes and reads with no path between: their values may legally change by a switch."""
    found: dict[str, str] = {}
    for kind in kinds:
        ends = {graphview.split_input(n)[0] for n in (*kind.fetches, *kind.targets)} & view.nodes.keys()
        step = view.ancestors(ends)
        for variable in (n for n in step if view.nodes[n].op in rules.VARIABLES and n not in found):
            race = _race(view, step, variable)
            if race:
                found[variable] = race
    return [f"variable {v} is written and read without order ({how}): its values may change" for v, how in found.items()]


def _race(view: GraphView, step: set[str], variable: str) -> str:
    """ "reader, writer" for a pair without a path between them inside one step; "" when all are ordered."""
    users = [n for n in view.consumers[variable] if n in step]
    writers = [n for n in users if view.nodes[n].op.startswith(_WRITES)]
    readers = [n for n in users if n not in writers and view.nodes[n].op != "VarIsInitializedOp"]
    for writer in writers:
        before, after = view.ancestors([writer]), view.descendants([writer])
        for reader in readers + [w for w in writers if w != writer]:
            if reader not in before and reader not in after:
                return f"{reader}, {writer}"
    return ""
