"""Order edges around v1 loops: what a loop's rounds need stays before what is behind the loop, so that every step ends."""

from __future__ import annotations

import random
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from order_cases import NOTHING_HELD, POOLS, kind  # noqa: E402

from stepd.hook.engine.graphview import GraphView  # noqa: E402
from stepd.hook.order.edges import Edge, Wanted, order_edges  # noqa: E402
from stepd.hook.order.rounds import may_need, never_ends, rounds  # noqa: E402
from stepd.hook.order.walk import needs, sorted_by_needs  # noqa: E402

pytestmark = pytest.mark.usefixtures("first_generation")

COSTLY = ("MatMul",)


def product(name: str, *values: Any) -> Any:
    """A costly op of `values`."""
    return tf.matmul(tf.add_n(list(values)), tf.eye(2), name=name)


def loop(taken: Any, inner: Any = None) -> Any:
    """The exit of a loop over zeros that begins without `taken`; each round takes it, and with `inner` runs a loop itself."""

    def body(k: Any, x: Any) -> Any:
        return k + 1, x + taken + (loop(inner) if inner is not None else 0.0)

    return tf.while_loop(lambda k, x: k < 3, body, [0, tf.zeros([2, 2])])[1]


def looping() -> Any:
    """Products before, beside and behind loops, one within another."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder_with_default(tf.ones([2, 2]), [2, 2], name="x")
        taken, deep = product("taken", x), product("deep", x)
        first = loop(taken, deep)
        behind, beside = product("behind", first), product("beside", x)
        second = loop(product("between", behind, beside), beside)
        product("last", second, tf.gradients(tf.reduce_sum(second), x)[0])
    return graph


def view_of(graph: Any) -> GraphView:
    return GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)


def edges_of(view: GraphView, priority: dict[str, int]) -> tuple[Edge, ...]:
    seconds = {name: 1e-3 for name, node in view.nodes.items() if node.op in COSTLY}
    return order_edges(view, NOTHING_HELD, [kind("last")], Wanted(priority, seconds), dict.fromkeys(view.nodes, "d0"), POOLS)


def test_an_exit_needs_what_its_rounds_take() -> None:
    view = view_of(looping())
    exits = [name for name, node in view.nodes.items() if node.op == "Exit"]
    needed, plain = may_need(view, view.nodes.keys()), needs(view, view.nodes.keys())
    assert sorted_by_needs(needed) is not None
    assert all(rounds(view, name) for name in exits)

    def above(ends: dict[str, list[str]], name: str) -> set[str]:
        seen, stack = {name}, [name]
        while stack:
            fresh = set(ends[stack.pop()]) - seen
            seen |= fresh
            stack += fresh
        return seen

    assert {"taken", "deep"} <= above(needed, "behind")
    assert not {"taken", "deep"} & above(plain, "behind")  # what a sorting without back edges knows


def test_every_step_ends_whatever_the_priorities() -> None:
    """With the edges as control edges of a real graph: a cycle through a loop would never end."""
    graph = looping()
    view = view_of(graph)
    with tf.Session(graph=graph) as session:
        expected = session.run("last:0")
    rng = random.Random(7)
    total = 0
    for _ in range(12):
        names = list(view.nodes)
        rng.shuffle(names)
        edges = edges_of(view, {name: k for k, name in enumerate(names)})
        total += len(edges)
        proto = graph.as_graph_def()
        nodes = {node.name: node for node in proto.node}
        for edge in edges:
            nodes[edge.tie.held].input.append(f"^{edge.tie.signal}")
        with tf.Graph().as_default() as ordered:
            tf.import_graph_def(proto, name="")
            with tf.Session(graph=ordered) as session:
                assert (session.run("last:0", options=tf.RunOptions(timeout_in_ms=20_000)) == expected).all()
    assert total >= 12  # there was something to order


def test_a_copy_that_waits_for_itself_through_a_loop_is_recognised() -> None:
    proto = looping().as_graph_def()
    assert not never_ends(proto.node)
    nodes = {node.name: node for node in proto.node}
    nodes["taken"].input.append("^beside")
    assert not never_ends(proto.node)
    nodes["deep"].input.append("^behind")
    assert never_ends(proto.node)
