"""What TensorFlow's placer insists on, read from plain nodes."""

from __future__ import annotations

import numpy as np
import pytest

from stepd.core.errors import ProblemError
from stepd.core.graph import GraphCosts, Node, OpGraph, ancestors, op_graph, problem_of, requested_devices
from stepd.core.problem import Device, Link


def groups(graph: OpGraph) -> list[set[str]]:
    found: dict[int, set[str]] = {}
    for name, number in zip(graph.names, graph.colocation.tolist(), strict=True):
        if number >= 0:
            found.setdefault(number, set()).add(name)
    return sorted(found.values(), key=min)


def edges(graph: OpGraph) -> set[tuple[str, str, int]]:
    columns = zip(graph.edge_src.tolist(), graph.edge_dst.tolist(), graph.edge_output.tolist(), strict=True)
    return {(graph.names[src], graph.names[dst], output) for src, dst, output in columns}


def test_edges_are_consumers_of_outputs_and_control_edges() -> None:
    graph = op_graph(
        [
            Node("split", "Split"),
            Node("square", "Mul", ("split:1", "split:1")),
            Node("after", "NoOp", ("^square", "^split")),
        ]
    )
    assert edges(graph) == {("split", "square", 1), ("square", "after", -1), ("split", "after", -1)}
    assert groups(graph) == []


def test_users_of_a_resource_share_its_device_and_users_of_its_value_do_not() -> None:
    graph = op_graph(
        [
            Node("v", "VarHandleOp", dtype=1, shape=(3, 4)),
            Node("handle", "Identity", ("v",)),
            Node("read", "ReadVariableOp", ("handle",)),
            Node("use", "MatMul", ("read",)),
            Node("update", "ResourceApplyGradientDescent", ("v", "use", "use")),
            Node("body", "StatefulPartitionedCall", ("v",)),
        ]
    )
    assert groups(graph) == [{"v", "handle", "read", "update"}]
    assert graph.resident_bytes.tolist() == [48, 0, 0, 0, 0, 0]


def test_updates_of_a_reference_share_its_device_and_reads_may_be_far() -> None:
    graph = op_graph(
        [
            Node("v", "VariableV2", dtype=1, shape=(2,)),
            Node("far", "Identity", ("v",)),
            Node("add", "AssignAdd", ("v", "far")),
            Node("add_again", "AssignAdd", ("add", "far")),
            Node("queue", "FIFOQueue"),
            Node("size", "QueueSize", ("queue",)),
        ]
    )
    assert groups(graph) == [{"v", "add", "add_again"}, {"queue", "size"}]


def test_class_attributes_join_even_when_the_op_they_name_is_gone() -> None:
    graph = op_graph(
        [
            Node("a", "Const", colocate_with=("pruned",)),
            Node("b", "Const", colocate_with=("pruned",)),
            Node("c", "Const", colocate_with=("b",)),
            Node("d", "Const"),
        ]
    )
    assert groups(graph) == [{"a", "b", "c"}]


def loop(frame: str, start: str) -> list[Node]:
    return [
        Node(f"{frame}/enter", "Enter", (start,), frame_name=frame),
        Node(f"{frame}/merge", "Merge", (f"{frame}/enter", f"{frame}/next")),
        Node(f"{frame}/test", "LoopCond", (f"{frame}/merge",)),
        Node(f"{frame}/switch", "Switch", (f"{frame}/merge", f"{frame}/test")),
        Node(f"{frame}/body", "Exp", (f"{frame}/switch:1",)),
        Node(f"{frame}/next", "NextIteration", (f"{frame}/body",)),
        Node(f"{frame}/exit", "Exit", (f"{frame}/switch",)),
    ]


def test_a_loop_is_one_group_and_loses_its_back_edge() -> None:
    nodes = [Node("start", "Const"), *loop("while", "start"), Node("end", "Neg", ("while/exit",))]
    graph = op_graph(nodes)
    assert groups(graph) == [{node.name for node in nodes} - {"start", "end"}]
    assert ("while/next", "while/merge", 0) not in edges(graph)
    assert ("while/exit", "end", 0) in edges(graph)


def test_a_loop_in_a_loop_belongs_to_the_outer_one() -> None:
    inner = loop("outer/inner", "outer/switch:1")
    outer = [
        Node(
            n.name,
            n.op,
            ("outer/inner/exit",) if n.name == "outer/body" else n.inputs,
            frame_name=n.frame_name,
        )
        for n in loop("outer", "start")
    ]
    nodes = [Node("start", "Const"), *outer, *inner]
    assert groups(op_graph(nodes)) == [{node.name for node in nodes} - {"start"}]


def test_a_cycle_that_is_no_loop_is_named() -> None:
    nodes = [Node("a", "Neg", ("b",)), Node("b", "Neg", ("a",)), Node("behind", "Neg", ("b",))]
    with pytest.raises(ProblemError, match=r"cycle through op '[ab]'"):
        op_graph(nodes)


def test_missing_inputs_and_repeated_names_are_named() -> None:
    with pytest.raises(ProblemError, match=r"op 'a' reads 'gone:1'"):
        op_graph([Node("a", "Neg", ("gone:1",))])
    with pytest.raises(ProblemError, match="two ops are called 'a'"):
        op_graph([Node("a", "Neg"), Node("a", "Neg")])


def test_ancestors_are_what_a_run_executes() -> None:
    nodes = [
        Node("a", "Const"),
        Node("b", "Neg", ("a",)),
        Node("c", "Neg", ("^a",)),
        Node("d", "Neg", ("c",)),
    ]
    assert [node.name for node in ancestors(nodes, ["c", "not of this graph"])] == ["a", "c"]


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("/device:GPU:1", 1),
        ("/gpu:0", 0),
        ("/job:worker/task:1", 2),
        ("/cpu:0", 2),
        ("/job:worker", -1),
        ("", -1),
    ],
)
def test_requested_devices_understand_partial_names(request_: str, expected: int) -> None:
    names = [
        "/job:worker/replica:0/task:0/device:GPU:0",
        "/job:worker/replica:0/task:0/device:GPU:1",
        "/job:worker/replica:0/task:1/device:CPU:0",
    ]
    assert requested_devices([request_], names).tolist() == [expected]


def test_a_problem_takes_sizes_by_output_and_devices_from_the_code() -> None:
    graph = op_graph([Node("a", "Split", device="/gpu:1"), Node("b", "Neg", ("a:1", "^a"))])
    costs = GraphCosts(np.ones((2, 2)), np.zeros(2, np.int64), np.zeros(2, np.int64), {(0, 0): 3, (0, 1): 7})
    devices = [Device(f"/device:GPU:{k}", "GPU", 100) for k in range(2)]
    problem = problem_of("p", graph, costs, devices, [Link(0, 1, 1e9, 0.0)])
    assert dict(zip(problem.edge_output.tolist(), problem.edge_bytes.tolist(), strict=True)) == {1: 7, -1: 0}
    assert problem.user_devices is not None
    assert problem.user_devices.tolist() == [1, -1]
