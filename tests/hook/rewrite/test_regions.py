"""Regions: data parallelism found in programs for one device trains as the program does, and touches memory at its edges only."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from split_harness import assert_same, copied, facts_of
from split_models import MODELS, Data
from split_programs import PROGRAMS
from split_training import replicated, sliced, train_both

from stepd.hook.model import Split
from stepd.hook.rewrite import table
from stepd.hook.rewrite.chosen import bounds_of, choose
from stepd.hook.rewrite.emit import split_nodes
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.nodes import pieces
from stepd.hook.rewrite.reads import Reads
from stepd.hook.rewrite.replicate import batch_regions

EQUAL, UNEVEN = (1.0, 1.0), (2.0, 3.0, 1.0)


@pytest.mark.parametrize("model", sorted(MODELS))
def test_a_replicated_program_learns_the_same(model: str) -> None:
    both = train_both(model, Data(np.float64, 6), 4, replicated(UNEVEN))
    assert both.difference < 1e-10 and not both.refused
    assert both.plain[0] != both.plain[-1]
    whole = [name for name in both.facts.order if both.facts.view.nodes[name].op in table.HEAVY and name not in both.chosen]
    assert whole == [], "a product or a convolution was not split"
    # In: what the program reads, and rows of embeddings. Out: gradients of rows of embeddings, and lookups in them.
    read = ("Placeholder", "Gather", "embedding_lookup", "zeros_like", "random_uniform/RandomUniform")
    assert all(name.startswith(read) for name in both.cuts()), both.cuts()
    assert all(both.facts.view.nodes[reader].op.startswith("Resource") for _, reader in both.joined()), both.joined()
    assert both.waits_across() == [], "devices would go in step"


@pytest.mark.parametrize("model, columns", [("alexnet", True), ("bert", False)])
def test_dense_layers_cut_along_their_weights_learn_the_same(model: str, columns: bool) -> None:
    both = train_both(model, Data(np.float64, 6), 4, sliced(UNEVEN, columns))
    assert both.difference < 1e-10 and not both.refused
    assert both.plain[0] != both.plain[-1]
    axes = {both.chosen[name].way.axis for name in both.chosen if both.facts.view.nodes[name].op == "MatMul"}
    assert axes == ({"1", "inner"} if columns else {"0", "1", "inner"})


@pytest.mark.parametrize("how", ["fed", "iterator", "queue"])
@pytest.mark.parametrize("model", ["lenet", "lstm"])
def test_batches_of_a_size_known_late_are_shared_out(model: str, how: str) -> None:
    both = train_both(model, Data(np.float64, 6, late=True, how=how), 6, replicated(EQUAL))
    assert both.difference < 1e-10 and len(both.chosen) > 50
    assert not any(both.facts.view.nodes[name].op in table.HEAVY for name in both.facts.order if name not in both.chosen)


def tied(data: Data) -> tuple[Any, Any]:
    """Words scored by the embeddings that they are read with; shapes are taken apart and put together on the way."""
    random = np.random.RandomState(5)
    words, following = data.words(5, 11)
    table, mix = (
        tf.get_variable(n, initializer=random.randn(*s), use_resource=True) for n, s in (("table", (11, 6)), ("mix", (6, 6)))
    )
    hidden = tf.tanh(tf.tensordot(tf.nn.embedding_lookup(table, words), mix, 1))
    scores = tf.tensordot(hidden, tf.transpose(table), 1)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=following, logits=scores))
    return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


@pytest.mark.parametrize("weights", [EQUAL, UNEVEN])
def test_rows_of_which_only_the_runtime_knows_what_they_are_multiples_of(monkeypatch: Any, weights: tuple[float, ...]) -> None:
    monkeypatch.setitem(MODELS, "tied", tied)
    both = train_both("tied", Data(np.float64, 6, late=True), 6, replicated(weights))
    assert both.difference < 1e-10 and both.plain[0] != both.plain[-1]
    nodes = both.facts.view.nodes
    products = [name for name in both.facts.order if nodes[name].op == "MatMul"]
    assert products and all(name in both.chosen for name in products)


def volumes(data: Data) -> tuple[Any, Any]:
    """Convolutions of volumes and by channel, dense layers by Einsum with an ellipsis."""
    random = np.random.RandomState(5)
    x, _ = data.images(8, 2, 3)

    def weights(*shape: int) -> Any:
        return tf.get_variable("w" + "x".join(map(str, shape)), initializer=0.3 * random.randn(*shape).astype(data.dtype))

    h = tf.nn.conv3d(tf.reshape(x, [-1, 4, 4, 4, 2]), weights(2, 2, 2, 2, 4), [1] * 5, "SAME")
    h = tf.reshape(h, [-1, 8, 8, 4])
    h = tf.nn.depthwise_conv2d(tf.nn.elu(h), weights(3, 3, 4, 2), [1] * 4, "SAME")
    h = tf.einsum("...x,xy->...y", tf.tanh(h), weights(8, 6))
    h = tf.einsum("...rxk,...ryk->...xy", h, h)
    loss = tf.reduce_mean(tf.square(h - 1.0))
    return loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)


@pytest.mark.parametrize(("dtype", "late"), [(np.float64, False), (np.float64, True), (np.float32, True)])
def test_volumes_filters_by_channel_and_ellipses_stay_in_parts(monkeypatch: Any, dtype: Any, late: bool) -> None:
    monkeypatch.setitem(MODELS, "volumes", volumes)
    both = train_both("volumes", Data(dtype, 6, late=late), 6, replicated(UNEVEN))
    assert both.difference < (1e-10 if dtype == np.float64 else 1e-4) and both.plain[0] != both.plain[-1]
    whole = [name for name in both.facts.order if both.facts.view.nodes[name].op in table.HEAVY and name not in both.chosen]
    assert whole == [], "a product or a convolution was not split"


@pytest.mark.parametrize("program", ["wgan_gp", "mixture"])
def test_noise_drawn_for_the_rows_and_rows_chosen_by_row_stay_in_parts(monkeypatch: Any, program: str) -> None:
    monkeypatch.setitem(MODELS, program, PROGRAMS[program])
    both = train_both(program, Data(np.float64, 6), 3, replicated(UNEVEN))
    assert both.difference < 1e-10 and both.plain[0] != both.plain[-1]
    nodes = both.facts.view.nodes
    whole = {nodes[name].op for name in both.facts.order if nodes[name].op in table.HEAVY and name not in both.chosen}
    assert whole <= {"MatMul"}, "of a gradient that is the same for all rows"
    chosen = [name for name in both.facts.order if nodes[name].proto.attr["batch_dims"].i]
    assert len(chosen) == (program == "mixture") and all(name in both.chosen for name in chosen)


def test_a_grain_that_a_size_may_not_be_a_multiple_of_is_refused() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float64, [None, 3], name="x")
        tf.matmul(x, tf.ones([3, 2], tf.float64), name="product")
    facts = facts_of(graph)
    chosen, why = choose(facts, [Split("product", "batch", 2)], {"product": (facts.ways("product")["0"], 5)})
    assert chosen == {} and "its input x may not be a multiple of 5 along axis 0" in why["product"]


def test_single_precision_differs_by_rounding_only() -> None:
    both = train_both("vgg", Data(np.float32, 6), 6, replicated(EQUAL))
    assert 0 < both.difference < 1e-4


def test_pooling_in_single_precision_outlives_parts_of_nothing() -> None:
    both = train_both("lenet", Data(np.float32, 3, late=True), 3, replicated(UNEVEN))
    assert both.difference < 1e-4
    pools = [name for name in both.chosen if both.facts.view.nodes[name].op == "MaxPoolGrad"]
    assert pools, "oneDNN's gradient of pooling is what a part of nothing would end the process in"


def test_a_region_ends_at_batch_normalization_and_begins_again_behind_it() -> None:
    both = train_both("resnet", Data(np.float32, 6), 3, replicated(EQUAL))
    nodes = both.facts.view.nodes
    assert both.difference < 1e-4
    assert not any(nodes[name].op.startswith("FusedBatchNorm") for name in both.chosen)
    assert all(name in both.chosen for name in both.facts.order if nodes[name].op in table.HEAVY)
    assert any(nodes[reader].op == "FusedBatchNormV3" for _, reader in both.joined())


def test_batch_normalization_and_its_gradient_are_split_on_channels_together() -> None:
    with tf.Graph().as_default() as graph:
        random = np.random.RandomState(0)
        x = tf.constant(random.randn(3, 4, 4, 6).astype(np.float32))
        scale, offset = tf.constant(np.arange(1, 7, dtype=np.float32)), tf.zeros([6])
        y = tf.nn.fused_batch_norm(x, scale, offset)[0]
        gradients = tf.gradients(y, [x, scale, offset], grad_ys=tf.cos(y))
    facts = facts_of(graph)
    both = [name for name in facts.order if facts.view.nodes[name].op.startswith("FusedBatchNorm")]
    alone, why = choose(facts, [Split(both[0], "3", 2)])
    assert alone == {} and "cannot be joined" in why[both[0]]
    chosen, refused = choose(facts, [Split(name, "3", 2, (), (1, 2)) for name in both])
    assert refused == {}
    _compare(graph, facts, chosen, [y, *gradients])


def _compare(graph: Any, facts: Facts, chosen: Any, tensors: list[Any]) -> list[Any]:
    """Assert that `tensors` come out the same of a copy with `chosen` split; returns the copy's nodes."""
    made = split_nodes(facts, copied(facts, list(facts.order), "stepd_1"), chosen, "stepd_1")
    definition = graph.as_graph_def()
    definition.node.extend(made)
    with tf.Graph().as_default() as together:
        tf.import_graph_def(definition, name="")
        with tf.Session(graph=together) as session:
            for tensor in tensors:
                name, _, index = tensor.name.partition(":")
                assert_same(*session.run([tensor.name, f"{name}-stepd_1:{index}"]), tensor.name)
    return made


def test_columns_then_rows_of_two_layers_touch_no_memory_between() -> None:
    with tf.Graph().as_default() as graph:
        x, v, w = (tf.constant(np.random.RandomState(k).randn(4, 4)) for k in range(3))
        hidden = tf.nn.relu(tf.matmul(x, v, name="first"), name="hidden")
        out = tf.matmul(hidden, w, name="second")
    facts = facts_of(graph)
    chosen, refused = choose(facts, [Split("first", "1", 2), Split("hidden", "1", 2), Split("second", "inner", 2)])
    assert refused == {}
    made = _compare(graph, facts, chosen, [out])
    used = {source.partition(":")[0] for node in made for source in node.input if not node.name.startswith(("first-", "hidden-"))}
    assert not used & {"first-stepd_1", "hidden-stepd_1"}, "a join is read although the parts fit"


def test_a_split_that_cannot_be_done_says_why() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3], name="x")
        tf.matmul(x, x, transpose_b=True, name="product")
        tf.add_n([x, x], name="sum")
    facts = facts_of(graph)
    for split, why in {
        Split("x", "0", 2): "cannot be split on '0'; its axes are none",
        Split("product", "depth", 2): "its axes are 0, 1, inner",
        Split("product", "0", 5): "into 2 to 4 parts",
        Split("product", "0", 2, ("/device:CPU:0",)): "2 parts but 1 devices",
        Split("product", "0", 2, (), (1, 0)): "weight above 0",
        Split("product", "0", 2, (), (1, 99)): "parts of nothing",
        Split("sum", "partial", 2): "not there in parts",
        Split("gone", "0", 2): "not in the graph",
    }.items():
        chosen, refused = choose(facts, [split])
        assert chosen == {} and why in refused[split.op], refused


def test_two_sides_that_might_broadcast_in_some_run_are_not_cut() -> None:
    with tf.Graph().as_default() as graph:
        one, other = (tf.placeholder(tf.float32, [None, 3], name=n) for n in ("one", "other"))
        tf.add(one, other, name="unsure")
        tf.add(one, tf.nn.relu(one), name="sure")
    facts = facts_of(graph)
    assert "0" not in facts.ways("unsure") and "1" in facts.ways("unsure")
    assert "0" in facts.ways("sure")


def test_ops_with_effects_or_chance_are_never_split() -> None:
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", [4, 4], use_resource=True)
        v.assign_add(tf.random_uniform([4, 4], seed=1))
        tf.Print(v, [v])
        tf.py_func(lambda a: a, [v.read_value()], tf.float32)
    facts = facts_of(graph)
    usable = {facts.view.nodes[n].op for n in facts.order if any(w.usable for w in facts.ways(n).values())}
    assert usable <= {"Identity", "Add", "AddV2", "Mul", "Sub"}, usable
    assert batch_regions(facts).ways == {}


def test_ops_in_the_frame_of_a_loop_stay_whole() -> None:
    with tf.Graph().as_default() as graph:
        tf.disable_control_flow_v2()
        x = tf.placeholder(tf.float32, [4, 4])
        tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, tf.matmul(a, a)), [0, x])
        after = tf.matmul(x, x, name="after")
    facts = facts_of(graph)
    looped = [n for n in facts.order if facts.view.nodes[n].op == "MatMul" and n != after.op.name]
    assert looped and not any(facts.ways(n) for n in looped)
    assert facts.ways("after")


def test_shares_become_whole_numbers() -> None:
    assert bounds_of(3) == (0, 1, 2, 3)
    assert bounds_of(2, (1, 3)) == (0, 2500, 10000)
    assert bounds_of(2, (1e-3, 2e-3))[1] == 3333
    assert pieces(32, bounds_of(2, (0.498, 0.502))) == [16, 16], "to the nearest row"
    assert pieces(32, bounds_of(2, (0.45, 0.55))) == [14, 18]


def test_equal_reads_of_a_variable_are_sent_once_unless_a_write_may_come_between() -> None:
    with tf.Graph().as_default() as graph:
        v, u = (tf.get_variable(n, initializer=np.eye(4), use_resource=True) for n in "vu")
        x = tf.placeholder(tf.float64, [4, 4])
        first, second = v.read_value(), v.read_value()
        v.assign_add(tf.matmul(tf.matmul(x, first), second))
        one, other = u.read_value(), u.read_value()
        with tf.control_dependencies([max(one, other, key=lambda t: t.name)]):
            u.assign_add(x)
    reads = Reads(facts_of(graph).view)
    nodes = [t.op.inputs[0].op.name if t.op.type == "Identity" else t.op.name for t in (first, second, one, other)]
    assert reads.one_for(nodes[0]) == reads.one_for(nodes[1])
    assert reads.one_for(nodes[2]) != reads.one_for(nodes[3]), "one is read before the write, the other at any time"


def test_a_variable_of_the_old_kind_is_cut_by_its_value() -> None:
    with tf.Graph().as_default() as graph:
        v = tf.get_variable("v", initializer=np.arange(12.0).reshape(4, 3), use_resource=False)
        tf.matmul(v, np.eye(3), name="product")
    facts = facts_of(graph)
    chosen, refused = choose(facts, [Split(name, "0", 2) for name in ("v/read", "product")])
    assert refused == {}
    made = split_nodes(facts, copied(facts, ["v/read", "product"], "c"), chosen, "c")
    with tf.Graph().as_default() as together:
        definition = graph.as_graph_def()
        definition.node.extend(made)
        tf.import_graph_def(definition, name="")
        with tf.Session(graph=together) as session:
            session.run("v/Assign")
            assert_same(*session.run(["product:0", "product-c:0"]), "product")
