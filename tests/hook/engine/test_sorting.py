"""The order in which Grappler has a step's ops when it looks for equal ones, against Grappler itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.protobuf import config_pb2, rewriter_config_pb2  # noqa: E402
from tensorflow.python.grappler import tf_optimizer  # noqa: E402

from stepd.hook.engine import sorting  # noqa: E402

DEVICES = ("/job:localhost/replica:0/task:0/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:1")


def grapplers(graph: Any, ends: Collection[str]) -> list[str]:
    """The ops that Grappler leaves of a graph without equal ones, in its order."""
    meta = tf.train.export_meta_graph(graph=graph)
    meta.collection_def["train_op"].node_list.value.extend(ends)
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.optimizers.extend(["pruning", "common_subgraph_elimination"])
    options.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.ONE
    options.min_graph_nodes = -1
    return [node.name for node in tf_optimizer.OptimizeGraph(config, meta).node]


def listed(graph: Any, ends: Collection[str]) -> list[str]:
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    fed = {"x"}  # Grappler takes placeholders for fed
    return sorting.listed(view.nodes, fed.union(ends), fed, lambda name: view.nodes[name].device, frozenset(view.functions))


OPS = st.tuples(st.sampled_from("iisgnammm"), st.integers(0, 30), st.integers(0, 30), st.integers(0, 60), st.integers(0, 4))


@settings(max_examples=60, deadline=None)
@given(st.lists(OPS, min_size=4, max_size=25), st.integers(1, 3))
def test_ops_come_as_grappler_has_them(drawn: list[tuple[str, int, int, int, int]], ends: int) -> None:
    with tf.Graph().as_default() as graph:
        values = [tf.placeholder(tf.float32, [4], name="x")]
        before: list[Any] = [values[0].op]
        for number, (kind, one, other, wait, far) in enumerate(drawn):
            a, b = values[one % len(values)], values[other % len(values)]
            waits = [before[wait]] if wait < len(before) else []
            with tf.device(DEVICES[far == 0]), tf.control_dependencies(waits):
                if kind == "n":
                    before.append(tf.no_op(name=f"n{number}"))
                    continue
                made = {
                    "i": lambda a, b, number: tf.identity(a, name=f"i{number}"),
                    "s": lambda a, b, number: tf.stop_gradient(a, name=f"s{number}"),
                    "g": lambda a, b, number: tf.raw_ops.PreventGradient(input=a, message=f"{number}", name=f"g{number}"),
                    "a": lambda a, b, number: tf.raw_ops.AddN(inputs=[a, b, a], name=f"a{number}"),
                    "m": lambda a, b, number: tf.raw_ops.LeakyRelu(features=a, alpha=number, name=f"m{number}"),  # none is like it
                }[kind](a, b, number)
            values.append(made)
            before.append(made.op)
        names = [op.name for op in before[-ends:]]
        expected = grapplers(graph, names)
    found = listed(graph, names)
    if len(expected) == len(found):  # some ops may have been equal
        assert found == expected
    else:
        assert set(expected) < set(found)
