"""Changes to nodes of a C graph of the hook's own that no session has taken yet. Thin, as `capi.py` is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stepd.hook.engine.capi import Graph, buffer, c


def clear_device(graph: Graph, operation: Any) -> None:
    """Take back the device, and the colocation, that a node of the hook's own asks for."""
    clear_attr(graph, operation, "_class")
    set_device(graph, operation, "")


def set_device(graph: Graph, operation: Any, device: str) -> None:
    if hasattr(c, "SetRequestedDevice"):  # TensorFlow 2.12
        c.SetRequestedDevice(graph.handle, operation, device)
        return
    node = c.PyOperation(operation, _OwnTensor)
    node.graph = graph.handle
    node._set_device_from_string(device)


def clear_attr(graph: Graph, operation: Any, name: str) -> None:
    """No error where there is none."""
    c.ClearAttr(graph.handle, operation, name)


def set_attr(graph: Graph, operation: Any, name: str, value: bytes) -> None:
    """value: a serialized AttrValue."""
    with buffer(value) as buf:
        c.SetAttr(graph.handle, operation, name, buf)


def update_input(graph: Graph, operation: Any, index: int, source: Any) -> None:
    """source: a TF_Output."""
    place = c.TF_Input()
    place.oper, place.index = operation, index
    c.UpdateEdge(graph.handle, source, place)


def set_control_inputs(graph: Graph, operation: Any, sources: Sequence[Any]) -> None:
    """sources: C operations, instead of those that it waits for."""
    if hasattr(c, "RemoveAllControlInputs"):  # TensorFlow 2.12
        c.RemoveAllControlInputs(graph.handle, operation)
        for source in sources:
            c.AddControlInput(graph.handle, operation, source)
        return
    node, *others = [c.PyOperation(one, _OwnTensor) for one in (operation, *sources)]
    node.graph = graph.handle
    node._remove_all_control_inputs()
    node._add_control_inputs(others)


def operations(graph: Graph) -> Iterator[Any]:
    """All C operations of `graph`."""
    operation, position = c.TF_GraphNextOperation(graph.handle, 0)
    while operation is not None:
        yield operation
        operation, position = c.TF_GraphNextOperation(graph.handle, position)


_OwnTensor: Any = type("_OwnTensor", (c.PyTensor,), {}) if hasattr(c, "PyTensor") else None
