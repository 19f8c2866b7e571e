"""Devices of a session: names, kernels, and where an op may and does run. Knows no strategies."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

from stepd.hook.engine import capi
from stepd.hook.engine.graphview import Node
from stepd.hook.engine.settings import UserDevices
from stepd.hook.model import SessionDevice

_PART = re.compile(r"/(?:(job|replica|task):([^/]+)|device:([A-Za-z_]+):(\d+|\*)|(cpu|gpu|CPU|GPU):(\d+|\*))")


@dataclass(frozen=True)
class Spec:
    """A device request; an empty or None field is free."""

    job: str = ""
    replica: int | None = None
    task: int | None = None
    type: str = ""
    index: int | None = None


@functools.lru_cache(maxsize=4096)
def parse(device: str) -> Spec:
    """The fields of a full or partial device name, in any of the spellings that TensorFlow takes."""
    found: dict[str, Any] = {}
    for key, value, kind, index, old_kind, old_index in _PART.findall(device):
        if key == "job":
            found["job"] = value
        elif key and value.isdigit():
            found[key] = int(value)
        elif kind or old_kind:
            found["type"] = (kind or old_kind).upper()
            number = index or old_index
            found["index"] = int(number) if number.isdigit() else None
    return Spec(**found)


def near(one: str, other: str) -> bool:
    """Are both devices of one process and of one type, so that values go from one to the other as they are?"""
    a, b = parse(one), parse(other)
    return (a.job, a.task, a.type) == (b.job, b.task, b.type)


def agrees(device: str, wanted: Spec, with_index: bool = True) -> bool:
    """Is the full name `device` within the request `wanted`?"""
    have = parse(device)
    return (
        wanted.job in ("", have.job)
        and wanted.replica in (None, have.replica)
        and wanted.task in (None, have.task)
        and wanted.type in ("", have.type)
        and (not with_index or wanted.index in (None, have.index))
    )


class Devices:
    """The devices of one session. The first CPU's task is the one where ops go by default."""

    def __init__(
        self, found: tuple[SessionDevice, ...], user_devices: UserDevices, local_workers: bool = False, soft: bool = True
    ) -> None:
        """`soft`: does an op run elsewhere when the device that the user named is not there? Else TensorFlow refuses it."""
        self.all = found
        self.local_workers = local_workers
        self.names = frozenset(d.name for d in found)
        self.usable = tuple(d for d in found if d.usable)
        self._types = frozenset(d.type for d in self.usable)
        self.types = frozenset(d.type for d in found)
        self._user_devices = user_devices
        self._soft = soft
        # What was answered to (device, user's device, types with a kernel), which most ops of a graph share with others.
        self._homes: dict[tuple[str, frozenset[str]], str] = {}
        self._allowed: dict[tuple[str, str, frozenset[str]], tuple[str, ...]] = {}

    @property
    def mixed(self) -> bool:
        """Are there several types? Kernels of one type round otherwise than those of another."""
        return len(self.types) > 1

    @property
    def keep_types(self) -> bool:
        """Does an op stay on the type of device on which the program has it? Else it may go wherever it has a kernel."""
        return self.mixed and self._user_devices != "override"

    @property
    def alternatives(self) -> int:
        """Most devices that any op may choose from."""
        if not self.keep_types:
            return len(self.usable)
        return max((sum(d.type == kind for d in self.usable) for kind in self._types), default=0)

    @property
    def peers(self) -> tuple[str, ...]:
        """The usable devices that can do the same with the same result: the GPUs where there are any, and types are kept."""
        best = "CPU" if "GPU" not in self._types else "GPU"
        return tuple(d.name for d in self.usable if not self.keep_types or d.type == best)

    def able(self, node: Node) -> frozenset[str]:
        """The device types of the session that have a kernel for the op."""
        return kernel_types(node.op, node.proto, self.types)

    def home(self, node: Node, able: frozenset[str] | None = None) -> str:
        """Where TensorFlow puts an op by default: the best type that has a kernel, lowest index, default task.

        `able`: the types that all have a kernel on with which it must share a device.
        """
        key = (node.device, self.able(node) if able is None else able)
        found = self._homes.get(key)
        if found is None:
            found = self._homes[key] = self._home(*key)
        return found

    def _home(self, device: str, able: frozenset[str]) -> str:
        if device in self.names and (not self._soft or parse(device).type in able):
            return device
        wanted = parse(device)
        fitting = [d for d in self.all if agrees(d.name, wanted)] or list(self.all)
        if able and self._soft and not any(d.type in able for d in fitting):
            anywhere = replace(wanted, type="", index=None)  # as soft placement does
            fitting = [d for d in self.all if agrees(d.name, anywhere)]
        if not wanted.job and wanted.task is None:
            task = _task(self.all[0].name)
            fitting = [d for d in fitting if _task(d.name) == task] or fitting
        fitting.sort(key=lambda d: (d.type == "CPU", _position(d.name)))
        return next((d.name for d in fitting if d.type in able), fitting[-1].name)

    def of_several_tasks(self) -> bool:
        """Are they those of several processes, which the program has started itself?"""
        return not self.local_workers and len({_task(d.name) for d in self.all}) > 1

    def allowed(self, node: Node) -> tuple[str, ...]:
        """Devices that an op may be put on: kernels, and what the user's request leaves free.

        A request without a job means the default task's machine, except where the devices are this machine's workers. An op
        whose device is not there may go nowhere: the program is to hear of it.
        """
        key = (node.device, node.requested, kernel_types(node.op, node.proto, self._types))
        found = self._allowed.get(key)
        if found is None:
            found = self._allowed[key] = self._free(*key)
        return found

    def _free(self, device: str, requested: str, able: frozenset[str]) -> tuple[str, ...]:
        if not self._soft and requested and not any(agrees(d.name, parse(requested)) for d in self.all):
            return ()
        keep = self._user_devices == "keep"
        if self.local_workers:
            wanted = parse(device) if keep and requested else Spec()
        elif self._user_devices == "override":
            wanted = Spec()
        else:
            wanted = parse(requested)
        return tuple(d.name for d in self.usable if d.type in able and agrees(d.name, wanted, with_index=keep))


def _task(device: str) -> tuple[str, int | None]:
    spec = parse(device)
    return spec.job, spec.task


def _position(device: str) -> tuple[str, int, int, int]:
    """Sorts GPU:10 behind GPU:2."""
    spec = parse(device)
    return spec.job, spec.replica or 0, spec.task or 0, spec.index or 0


@dataclass(frozen=True)
class _Kernel:
    """What a kernel asks: types of attributes, and the label that an op must name in its attribute `_kernel`."""

    device_type: str
    label: str
    constraints: tuple[tuple[str, frozenset[int]], ...]


@functools.cache
def _kernels(op: str) -> tuple[_Kernel, ...]:
    """Every kernel of an op type."""
    return tuple(
        _Kernel(k.device_type, k.label, tuple((c.name, frozenset(c.allowed_values.list.type)) for c in k.constraint))
        for k in capi.kernel_defs(op)
    )


def kernel_types(op: str, node: Any, types: frozenset[str]) -> frozenset[str]:
    """Which of the device types `types` have a kernel for the op, of the types and the label of this NodeDef."""
    values = (node.attr[attr] for attr in _constrained(op))
    label = node.attr["_kernel"].s.decode() if "_kernel" in node.attr else ""
    return _kernel_types(op, tuple(tuple(value.list.type) or (value.type,) for value in values), label, types)


@functools.cache
def _constrained(op: str) -> tuple[str, ...]:
    """The attributes on which it depends whether there is a kernel."""
    return tuple(dict.fromkeys(attr for kernel in _kernels(op) for attr, allowed in kernel.constraints if allowed))


@functools.lru_cache(maxsize=1 << 14)
def _kernel_types(op: str, given: tuple[tuple[int, ...], ...], label: str, types: frozenset[str]) -> frozenset[str]:
    """`given`: types of the constrained attributes."""
    of = dict(zip(_constrained(op), given, strict=True))
    fitting = [
        kernel.device_type
        for kernel in _kernels(op)
        if kernel.label == label and all(not allowed or allowed.issuperset(of[attr]) for attr, allowed in kernel.constraints)
    ]
    return types if "DEFAULT" in fitting else types.intersection(fitting)
