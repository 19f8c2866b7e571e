"""Splits every op of a graph in every way that its rule offers, and compares what comes out with the op itself in one run."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.op_defs import output_types
from stepd.hook.model import Split
from stepd.hook.rewrite.chosen import choose
from stepd.hook.rewrite.emit import split_nodes
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.shapes import static_shapes

Shares = Sequence[Sequence[float]]
BFLOAT16 = np.dtype(tf.bfloat16.as_numpy_dtype)
TOLERANCE = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 2e-5, np.dtype(np.float16): 2e-2, BFLOAT16: 8e-2}
"""Relative to the largest value: some units in the last place of each type."""


@functools.cache
def computes_ellipses(dtype: Any) -> bool:
    """Whether TensorFlow itself is right about `...x,xy->...y` in this dtype. It is not in float16 on processors that compute in it
    (AVX-512 FP16), by oneDNN's kernels (2.21; right with TF_ENABLE_ONEDNN_OPTS=0): the whole op is off by more than its values."""
    rows, matrix = np.random.RandomState(0).uniform(-1, 1, (2, 4, 5)), np.random.RandomState(1).uniform(-1, 1, (5, 6))
    with tf.Graph().as_default(), tf.Session() as session:
        of = (tf.placeholder_with_default(value.astype(dtype), value.shape) for value in (rows, matrix))
        found = session.run(tf.einsum("...x,xy->...y", *of))
    return bool(np.allclose(found.astype(np.float64), rows @ matrix, atol=0.1))


def facts_of(graph: Any) -> Facts:
    """The facts of a tf.Graph."""
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    return Facts(view, static_shapes(graph))


def copied(facts: Facts, names: list[str], mark: str) -> dict[str, Any]:
    """NodeDefs of a copy of `names`, as the engine makes them."""
    made = {}
    for name in names:
        node = type(facts.view.nodes[name].proto)()
        node.CopyFrom(facts.view.nodes[name].proto)
        node.name = f"{name}-{mark}"
        for k, (source, index) in enumerate(facts.view.nodes[name].inputs):
            here = f"{source}-{mark}" if source in names else source
            node.input[k] = f"^{here}" if index < 0 else f"{here}:{index}"
        made[name] = node
    return made


def every_split(facts: Facts, shares: Shares) -> Iterator[tuple[str, str, Split, list[Any]]]:
    """(op, mark, split, nodes) of every different op, way and share that can be carried out on its own."""
    number = 0
    done = set()
    for name in facts.order:
        for axis, way in facts.ways(name).items():
            key = _like(facts, name), axis
            if key in done:
                continue
            done.add(key)
            for weights in shares:
                split = Split(name, axis, len(weights), (), tuple(weights))
                chosen, refused = choose(facts, [split])
                if name in refused:
                    assert not way.usable or way.units or "part" in refused[name] or "read" in refused[name], refused
                    continue
                mark = f"stepd_{number}"
                number += 1
                yield name, mark, split, split_nodes(facts, copied(facts, [name], mark), chosen, mark)


def _like(facts: Facts, name: str) -> tuple[Any, ...]:
    """What two ops have in common that are split in one way."""
    node = facts.view.nodes[name]
    inputs = facts.data_inputs(name)
    shapes = tuple(tuple(d if isinstance(d, int) else "?" for d in facts.dims(*i) or ()) for i in inputs)
    settings = tuple(sorted((k, str(v)) for k, v in node.proto.attr.items() if not k.startswith("_")))
    return node.op, shapes, settings, tuple(str(facts.constant(source)) for source, _ in inputs)


def compare_all(graph: Any, feeds: Mapping[str, Any], shares: Shares) -> set[tuple[str, str]]:
    """Assert that every split of every op gives what the op gives; returns (op type, axis) of what was split."""
    facts = facts_of(graph)
    together = graph.as_graph_def()
    checks: list[tuple[Split, str, str]] = []
    done: set[tuple[str, str]] = set()
    for name, mark, split, nodes in every_split(facts, shares):
        together.node.extend(nodes)
        node = facts.view.nodes[name]
        done.add((node.op, split.axis))
        outputs = facts.ways(name)[split.axis].outputs
        for index in range(len(output_types(node.proto))):
            if _is_set(node, index) and (outputs[index].kind not in ("opaque", "first") or node.op in ("Rank", "ShapeN")):
                checks.append((split, f"{name}:{index}", f"{name}-{mark}:{index}"))
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    with tf.Graph().as_default() as both:
        tf.import_graph_def(together, name="")
        with tf.Session(graph=both, config=config) as session:
            fetched = sorted({name for _, *pair in checks for name in pair})
            values = dict(zip(fetched, session.run(fetched, dict(feeds)), strict=True))
    for split, whole, joined in checks:
        assert_same(values[whole], values[joined], f"{split.op} ({facts.view.nodes[split.op].op}) split on {split.axis}")
    return done


def _is_set(node: Any, index: int) -> bool:
    """Kernels of normalization by given statistics leave the memory of what they would save for a gradient as it was: two runs of
    plain TensorFlow differ there."""
    normalizes = node.op in ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
    return not normalizes or index < 3 or bool(node.proto.attr["is_training"].b)


def assert_same(expected: Any, got: Any, what: str) -> None:
    """Equal for integers; equal up to the order of summation for floats."""
    assert expected.shape == got.shape, f"{what}: {got.shape} in place of {expected.shape}"
    if expected.dtype not in TOLERANCE:
        assert np.array_equal(expected, got), what
        return
    allowed = TOLERANCE[expected.dtype]
    if expected.dtype == BFLOAT16:
        expected, got = expected.astype(np.float32), got.astype(np.float32)
    scale = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=1.0))
    tolerance = allowed * scale
    assert np.allclose(expected, got, rtol=0, atol=tolerance, equal_nan=True), (
        f"{what}: off by {np.max(np.abs(expected - got))}, allowed {tolerance}"
    )
