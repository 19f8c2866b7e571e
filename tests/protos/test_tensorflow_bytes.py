"""TensorFlow's own bytes, read through the trimmed messages: every field that they keep has TensorFlow's value."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from stepd.v1 import profile_pb2

tf = pytest.importorskip("tensorflow")


def kept(trimmed: Message, full: Message, where: str = "") -> int:
    """Compare every field of `trimmed` with the same field of `full`; returns how many values were compared."""
    compared = 0
    for field in trimmed.DESCRIPTOR.fields:
        theirs = full.DESCRIPTOR.fields_by_name[field.name]
        assert theirs.number == field.number, f"{where}.{field.name}: number {field.number}, TensorFlow has {theirs.number}"
        a, b = getattr(trimmed, field.name), getattr(full, field.name)
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        repeated = not entry and hasattr(a, "__len__") and not isinstance(a, (str, bytes))
        if entry:
            assert sorted(a) == sorted(b), f"{where}.{field.name}"
            compared += sum(kept(a[key], b[key], f"{where}.{field.name}[{key}]") for key in a)
        elif field.message_type is not None and repeated:
            assert len(a) == len(b), f"{where}.{field.name}"
            compared += sum(kept(x, y, f"{where}.{field.name}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True)))
        elif field.message_type is not None:
            assert trimmed.HasField(field.name) == full.HasField(field.name), f"{where}.{field.name}"
            if trimmed.HasField(field.name):
                compared += kept(a, b, f"{where}.{field.name}")
        else:
            assert (list(a) == list(b)) if repeated else (a == b), f"{where}.{field.name}: {a!r}, TensorFlow has {b!r}"
            compared += 1
    return compared


@pytest.fixture(scope="module")
def traced():
    """A traced step of a graph with a variable, a function, a loop and a gradient: (RunMetadata, GraphDef) of TensorFlow."""
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:

        @tf.function
        def square(x):
            return x * x

        x = v1.placeholder(tf.float32, [None, 8])
        weights = v1.get_variable("weights", [8, 8], use_resource=True)
        y = tf.while_loop(lambda i, _: i < 3, lambda i, z: (i + 1, tf.matmul(z, weights)), [0, square(x)])[1]
        gradient = tf.gradients(y, weights)
        with v1.Session(graph=graph) as session:
            session.run(v1.global_variables_initializer())
            metadata = v1.RunMetadata()
            options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
            session.run([y, gradient], {x: [[1.0] * 8] * 4}, options=options, run_metadata=metadata)
        return metadata, graph.as_graph_def()


def test_run_metadata(traced):
    metadata, _ = traced
    trimmed = profile_pb2.RunMetadata.FromString(metadata.SerializeToString())
    assert kept(trimmed, metadata) > 500
    assert trimmed.step_stats.dev_stats[0].node_stats[0].output is not None


def test_graph_def(traced):
    _, graph_def = traced
    trimmed = profile_pb2.GraphDef.FromString(graph_def.SerializeToString())
    assert kept(trimmed, graph_def) > 500
    assert trimmed.library.function
