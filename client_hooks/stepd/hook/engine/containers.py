"""What an uninitialized variable's error says of its container, where a switch has made that different from plain.

TensorFlow creates a container on a device with the first resource there, and words the error by whether the container exists.
A restart begins without containers, and a variable that moved is looked for on another device. The text is made what it would be
plainly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tensorflow.core.framework import graph_pb2, types_pb2

from stepd.hook.engine import capi
from stepd.hook.engine.mirror import Mirror

_MISSING = re.compile(r"Container (\S+) does not exist\. \(Could not find resource: (\S+)\)")
DEFAULT = "localhost"


class Containers:
    """Containers that the session of a program has, wherever they are now. `known` survives restarts."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self._probed: Mirror | None = None
        self._probes: dict[str, list[Any]] = {}

    def forget_probes(self) -> None:
        """The session that they were made in is over."""
        self._probed, self._probes = None, {}

    def note(self, session: Any, mirror: Mirror, devices: Iterable[str], names: Iterable[str], prefix: str) -> None:
        """Remember those of `names` that exist in `session` on any device; the caller holds the engine's lock."""
        wanted = [name for name in dict.fromkeys(names) if name not in self.known]
        if self._probed is not mirror:
            self._probed, self._probes = mirror, {}
        self._prepare(session, mirror, list(devices), [name for name in wanted if name not in self._probes], prefix)
        self.known.update(name for name in wanted if any(_exists(session, probe) for probe in self._probes[name]))

    def _prepare(self, session: Any, mirror: Mirror, devices: list[str], names: list[str], prefix: str) -> None:
        graph = graph_pb2.GraphDef()
        graph.versions.CopyFrom(mirror.user_graph.graph_def_versions)
        wanted: list[tuple[str, str]] = []
        for i, container in enumerate(names):
            for k, device in enumerate(devices):
                handle, read = graph.node.add(), graph.node.add()
                handle.name, handle.op, handle.device = f"{prefix}/c{i}_{k}", "VarHandleOp", device
                handle.attr["dtype"].type = types_pb2.DT_FLOAT
                handle.attr["shape"].shape.SetInParent()
                handle.attr["container"].s = b"" if container == DEFAULT else container.encode()
                handle.attr["shared_name"].s = handle.name.encode()
                read.name, read.op, read.device = f"{handle.name}/read", "ReadVariableOp", device
                read.attr["dtype"].type = types_pb2.DT_FLOAT
                read.input.append(handle.name)
                wanted.append((container, read.name))
        if not wanted:
            return
        made = capi.import_graph_def(mirror.graph, graph.SerializeToString(), {}, {}, [name for _, name in wanted])
        capi.extend_session(session)
        for (container, _), operation in zip(wanted, made, strict=True):
            self._probes.setdefault(container, []).append(operation)

    def repair(self, text: str) -> str:
        """`text` as it is where the containers that are known exist."""

        def plain(found: re.Match[str]) -> str:
            container, resource = found.groups()
            return f"Resource {resource}/N10tensorflow3VarE does not exist." if container in self.known else found[0]

        return _MISSING.sub(plain, text)


def named_in(text: str) -> set[str]:
    """Containers that `text` says do not exist."""
    return {found[1] for found in _MISSING.finditer(text)}


def of_resource(node: Any) -> str:
    """The container of what a NodeDef owns."""
    return str(node.attr["container"].s.decode()) or DEFAULT


def of_nodes(nodes: Iterable[Any]) -> set[str]:
    """Containers that NodeDefs name, and the default one."""
    return {DEFAULT} | {node.attr["container"].s.decode() for node in nodes if "container" in node.attr} - {""}


def _exists(session: Any, probe: Any) -> bool:
    try:
        capi.run_session(session, None, {}, [], [probe], None)
    except Exception as error:
        return not named_in(str(error))
    return False
