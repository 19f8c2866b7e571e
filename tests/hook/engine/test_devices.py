"""Where ops may run on machines that this one is not: kernels and devices of GPUs, as TensorFlow describes them."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import kernel_def_pb2, node_def_pb2, types_pb2

from stepd.hook.engine import capi, devices
from stepd.hook.engine.graphview import Node
from stepd.hook.model import SessionDevice

JOB = "/job:localhost/replica:0/task:0/device:"


def kernel(device_type: str, label: str = "", *types: int) -> kernel_def_pb2.KernelDef:
    made = kernel_def_pb2.KernelDef(device_type=device_type, label=label)
    if types:
        made.constraint.add(name="T").allowed_values.list.type.extend(types)
    return made


def node(op: str, dtype: int = types_pb2.DT_FLOAT, label: str = "", device: str = "") -> Node:
    proto = node_def_pb2.NodeDef(name="x", op=op)
    proto.attr["T"].type = dtype
    if label:
        proto.attr["_kernel"].s = label.encode()
    return Node("x", op, (), device, device, proto)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> devices.Devices:
    """Twelve GPUs; ops with kernels for floats, for one label only, and for CPUs only."""
    registered = {
        "Floats": [kernel("CPU"), kernel("GPU", "", types_pb2.DT_FLOAT)],
        "Labelled": [kernel("CPU"), kernel("GPU", "fast")],
        "Anywhere": [kernel("DEFAULT")],
        "Host": [kernel("CPU")],
    }
    monkeypatch.setattr(capi, "kernel_defs", registered.__getitem__)
    for cached in (devices._kernels, devices._constrained, devices._has_kernel):
        cached.cache_clear()
    found = [SessionDevice(f"{JOB}GPU:{k}", "GPU", 1 << 30) for k in range(12)]
    return devices.Devices((SessionDevice(f"{JOB}CPU:0", "CPU", 1 << 30), *sorted(found, key=lambda d: d.name)), "free")


@pytest.mark.parametrize(
    ("asked", "home", "on_gpus"),
    [
        (node("Floats"), "GPU:0", 12),
        (node("Floats", types_pb2.DT_INT32), "CPU:0", 0),
        (node("Labelled"), "CPU:0", 0),
        (node("Labelled", label="fast"), "GPU:0", 12),
        (node("Anywhere"), "GPU:0", 12),
        (node("Host"), "CPU:0", 0),
    ],
)
def test_kernels_decide_where_an_op_goes(machine: devices.Devices, asked: Node, home: str, on_gpus: int) -> None:

    assert machine.home(asked) == JOB + home
    assert sum("GPU" in name for name in machine.allowed(asked)) == on_gpus


def test_gpus_are_counted_as_numbers() -> None:
    gpus = tuple(SessionDevice(f"{JOB}GPU:{k}", "GPU", 1 << 30) for k in (10, 11, 2, 3))
    assert devices.Devices(gpus, "free").home(node("NoOp", device="/job:localhost")) == f"{JOB}GPU:2"


def test_an_op_on_a_device_that_is_not_there_goes_nowhere_unless_placement_is_soft() -> None:
    cpus = tuple(SessionDevice(f"{JOB}CPU:{k}", "CPU", 1 << 30) for k in range(2))
    missing, there = node("NoOp", device="/cpu:7"), node("NoOp", device="/cpu:1")
    assert devices.Devices(cpus, "free", soft=False).allowed(missing) == ()
    assert len(devices.Devices(cpus, "free", soft=False).allowed(there)) == 2
    assert len(devices.Devices(cpus, "free").allowed(missing)) == 2
