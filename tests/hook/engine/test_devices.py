"""Where ops may run on machines that this one is not: kernels and devices of GPUs, as TensorFlow describes them."""

from __future__ import annotations

from typing import Any

import pytest
from tensorflow.core.framework import graph_pb2, kernel_def_pb2, node_def_pb2, types_pb2
from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import capi, devices, session_config
from stepd.hook.engine.copy import copied_nodes
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.home import allowed, home
from stepd.hook.engine.settings import Chaos, EngineSettings
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
        "Const": [kernel("DEFAULT")],
    }
    monkeypatch.setattr(capi, "kernel_defs", registered.__getitem__)
    for cached in (devices._kernels, devices._constrained, devices._kernel_types):
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
        (node("Host", device="/gpu:1"), "CPU:0", 0),
        (node("Host", device=f"{JOB}GPU:1"), "CPU:0", 0),
        (node("Floats", device=f"{JOB}GPU:1"), "GPU:1", 12),
    ],
)
def test_kernels_decide_where_an_op_goes(machine: devices.Devices, asked: Node, home: str, on_gpus: int) -> None:

    assert machine.home(asked) == JOB + home
    assert sum("GPU" in name for name in machine.allowed(asked)) == on_gpus


def view_of(*nodes: node_def_pb2.NodeDef) -> GraphView:
    return GraphView.parse(graph_pb2.GraphDef(node=nodes).SerializeToString(), lambda name: name)


def test_an_op_stays_on_its_type_of_device_and_a_company_where_all_of_it_has_kernels(machine: devices.Devices) -> None:
    """Kernels of another type round otherwise; what is colocated with an op for CPUs only is plainly on a CPU, too."""
    free, tied, host, constant = (node_def_pb2.NodeDef(name=n) for n in ("free", "tied", "host", "constant"))
    free.op, tied.op, host.op, constant.op = "Floats", "Floats", "Host", "Const"
    for made in (free, tied, host):
        made.attr["T"].type = types_pb2.DT_FLOAT
    host.attr["_class"].list.s.append(b"loc:@tied")
    view = view_of(free, tied, host, constant)

    def where(name: str, among: devices.Devices = machine) -> set[str]:
        return {devices.parse(device).type for device in allowed(view, among, view.nodes[name])}

    assert home(view, machine, view.nodes["tied"]) == home(view, machine, view.nodes["host"]) == f"{JOB}CPU:0"
    assert where("free") == {"GPU"} and where("tied") == where("host") == {"CPU"}
    assert where("constant") == {"CPU", "GPU"}, "it is the same everywhere"
    assert where("free", devices.Devices(machine.all, "override")) == {"CPU", "GPU"}, "as the operator asks"


def test_what_was_on_a_type_of_device_for_its_company_alone_stays_there_without_it() -> None:
    """What prepares the update of a variable that lies on a CPU, since there is no kernel for a GPU, is colocated with it."""
    variable, update = (node_def_pb2.NodeDef(name=n, op="Floats") for n in ("variable", "update"))
    update.attr["_class"].list.s.append(b"loc:@variable")
    view, moved = view_of(variable, update), {"variable": f"{JOB}CPU:1"}

    def copied(**given: Any) -> list[str]:
        return [made.device for made in copied_nodes(view, list(view.nodes), {}, "stepd_1", moved, **given)]

    assert copied(home=lambda name: f"{JOB}CPU:0", mixed=True) == [f"{JOB}CPU:1", f"{JOB}CPU:0"]
    assert copied(home=lambda name: f"{JOB}CPU:0") == [f"{JOB}CPU:1", ""], "one type of device: it is the same everywhere"


def test_a_copy_is_not_made_one_with_an_equal_op_that_the_program_has_elsewhere() -> None:
    """The towers of a network each compute the loss of a weight, say: with those of others read, and by their names, a sum of such
    losses would be sorted."""
    first, second, third = (node_def_pb2.NodeDef(name=n, op="Floats", device=d) for n, d in zip("abc", "001", strict=True))

    def told(moved: dict[str, str], *nodes: Any) -> list[str]:
        view = view_of(*nodes)
        made = copied_nodes(view, list(view.nodes), {}, "stepd_1", moved, home=lambda name: view.nodes[name].device)
        return [node.attr["_apart"].s.decode() for node in made]

    assert told({"a": "1", "b": "1"}, first, second, third) == ["0", "0", ""]
    assert told({"a": "1"}, first, second) == ["", ""], "a program with one device"


def test_how_many_devices_there_are_to_choose_from() -> None:
    cpu, *gpus = (SessionDevice(JOB + name, name[:3], 1 << 30) for name in ("CPU:0", "GPU:0", "GPU:1"))
    assert devices.Devices((cpu, gpus[0]), "free").alternatives == 1
    assert devices.Devices((cpu, gpus[0]), "override").alternatives == 2
    assert devices.Devices((cpu, *gpus), "free").alternatives == 2
    assert devices.Devices((cpu, *gpus), "free").peers == (f"{JOB}GPU:0", f"{JOB}GPU:1")


def test_chaos_divides_gpus_that_the_program_leaves_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_config, "_physical_gpus", lambda: ("one", "other"))
    settings = EngineSettings(chaos=Chaos(1, devices=3))
    asked = config_pb2.ConfigProto()
    made = session_config.for_chaos(asked, settings)
    assert [len(gpu.memory_limit_mb) for gpu in made.gpu_options.experimental.virtual_devices] == [3, 3]
    names = ("CPU:1", "CPU:2", "GPU:2", "GPU:3", "GPU:4", "GPU:5")
    assert session_config.added_by_chaos(asked, made) == tuple(JOB + name for name in names)
    assert not session_config.for_chaos(asked, settings, direct=False).gpu_options.experimental.virtual_devices
    for key, value in (("visible_device_list", "0"), ("per_process_gpu_memory_fraction", 0.5)):
        own = config_pb2.ConfigProto(gpu_options={key: value})
        assert not session_config.for_chaos(own, settings).gpu_options.experimental.virtual_devices


def test_gpus_are_counted_as_numbers() -> None:
    gpus = tuple(SessionDevice(f"{JOB}GPU:{k}", "GPU", 1 << 30) for k in (10, 11, 2, 3))
    assert devices.Devices(gpus, "free").home(node("NoOp", device="/job:localhost")) == f"{JOB}GPU:2"


def test_an_op_on_a_device_that_is_not_there_goes_nowhere_unless_placement_is_soft() -> None:
    cpus = tuple(SessionDevice(f"{JOB}CPU:{k}", "CPU", 1 << 30) for k in range(2))
    missing, there = node("NoOp", device="/cpu:7"), node("NoOp", device="/cpu:1")
    assert devices.Devices(cpus, "free", soft=False).allowed(missing) == ()
    assert len(devices.Devices(cpus, "free", soft=False).allowed(there)) == 2
    assert len(devices.Devices(cpus, "free").allowed(missing)) == 2
