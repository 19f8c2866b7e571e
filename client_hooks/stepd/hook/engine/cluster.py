"""Devices for the mirror of a session that runs on local workers: every node gets one, by what the op is and where the user put it.

Pure: NodeDefs in, device names out (FINDINGS of the design: worker 0 by default, the training process for what needs it).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stepd.hook.engine import graphview, op_defs
from stepd.hook.engine.devices import parse
from stepd.hook.local_devices import TRAINER_OPS


class WorkerPlacer:
    """Gives each node of a growing graph a worker; nodes that share state share a device."""

    def __init__(self, workers: tuple[str, ...], trainer: str, soft: bool = True) -> None:
        """`soft`: may an op run elsewhere when the user put it on a type of device that there is none of?"""
        self.device_of: dict[str, str] = {}
        self.requested: dict[str, str] = {}
        self.trainer = trainer
        self._workers = workers
        self._soft = soft

    def place(self, nodes: Iterable[Any], functions: Mapping[str, Any]) -> None:
        """Set the device of new NodeDefs; those that exist already keep theirs and draw new ones that share their state."""
        new = {node.name: node for node in nodes}
        for tied in self._tied(new):
            device = self._device(tied, new, functions)
            for name in tied:
                if name in new:
                    self._set(new[name], device)

    def _set(self, node: Any, device: str | None) -> None:
        if node.device:
            self.requested[node.name] = node.device
        chosen = device or self._mapped(node.device)
        self.device_of[node.name] = chosen
        node.device = chosen

    def _mapped(self, requested: str) -> str:
        """The user's /cpu:k or /gpu:k is worker k; what a plain session refuses (another job, a device type that it has none of
        without soft placement) is left to be refused."""
        spec = parse(requested)
        missing = spec.type not in ("", "CPU") and not self._soft
        if missing or spec.job not in ("", "localhost") or spec.task not in (None, 0):
            return requested
        index = spec.index or 0
        return self._workers[index] if index < len(self._workers) else self._workers[0]

    def _device(self, tied: list[str], new: Mapping[str, Any], functions: Mapping[str, Any]) -> str | None:
        """One device for nodes that share state: the old ones', the training process, or the first that the user named."""
        for name in tied:
            if name not in new:
                return self.device_of[name]
        if any(needs_trainer(new[name], functions) for name in tied):
            return self.trainer
        if len(tied) == 1:
            return None
        named = next((new[name].device for name in tied if new[name].device), "")
        return self._mapped(named)

    def _tied(self, new: Mapping[str, Any]) -> list[list[str]]:
        union = graphview.Union()
        for node in new.values():
            union.add(node.name)
            for other in graphview.colocated_with(node):
                if other in new or other in self.device_of:
                    union.join(node.name, other)
            types = op_defs.input_types(node)
            for i, name in enumerate(node.input):
                source, index = graphview.split_input(name)
                if index >= 0 and i < len(types) and op_defs.holds_state(types[i]):
                    union.join(node.name, source)
        return union.sets()


def needs_trainer(node: Any, functions: Mapping[str, Any]) -> bool:
    """Does it work with the files, the streams or the Python of the process that it runs in?"""
    if node.op in TRAINER_OPS:
        return True
    view = graphview.GraphView({}, functions)
    return any(inner.op in TRAINER_OPS for body in view.bodies(node) for inner in body.node_def)
