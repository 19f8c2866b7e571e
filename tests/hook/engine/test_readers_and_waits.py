"""Which ops share a device because of who reads a value, who waits for it, and which constants meet it in products and sums."""

from __future__ import annotations

from typing import Any

import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.python.ops import control_flow_util  # noqa: E402


def test_who_asks_for_a_shape_alone_is_no_reader_of_a_sum() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [None, 3])
        inner = tf.add(tf.sin(x), tf.cos(x), name="inner")
        tf.shape(inner)  # as a gradient does; Grappler may know the answer, and makes one sum of both then
        tf.add(inner, tf.tan(x), name="outer")
        read = tf.add(tf.exp(x), tf.tanh(x), name="read_twice")
        tf.reduce_sum(read)
        tf.add(read, tf.atan(x), name="apart")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    together = [set(group) for group in classify(view).groups]
    assert any({"inner", "outer"} <= group for group in together)
    assert not any({"read_twice", "apart"} <= group for group in together)


def test_what_a_loop_keeps_for_its_gradients_has_no_reader_there_in_an_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Graph().as_default() as graph:
        monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", False)
        x, w = tf.placeholder(tf.float32, [3]), tf.placeholder(tf.float32, [3])

        def body(k, value):  # type: ignore[no-untyped-def]
            return k + 1, tf.multiply(tf.multiply(tf.sin(value), tf.cos(value), name="inner"), w, name="outer")

        _, last = tf.while_loop(lambda k, _: k < 3, body, (0, x))
        tf.gradients(last, w)  # keeps each round's inner product
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert "StackPushV2" in {view.nodes[reader].op for reader in view.consumers["while/inner"]}
    assert any({"while/inner", "while/outer"} <= set(group) for group in classify(view).groups)


def test_who_reads_for_the_gradients_alone_is_no_reader_in_an_evaluation() -> None:
    with tf.Graph().as_default() as graph:
        x, scale = tf.placeholder(tf.float32, [4, 3]), tf.get_variable("scale", [3])
        inner = tf.multiply(x, tf.reduce_max(x, 1, keepdims=True), name="inner")
        outer = tf.multiply(inner, scale, name="outer")
        loss = tf.reduce_sum(tf.tanh(outer))
        tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert len(view.consumers["inner"]) > 1
    assert any({"inner", "outer"} <= set(group) for group in classify(view).groups)


def test_quotients_that_become_products_before_these_are_put_in_order_count_as_products() -> None:
    """As in a capsule's squashing: s * |s|² / sqrt(|s|²)."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3])
        size = tf.reduce_sum(tf.square(x), 1, keepdims=True, name="size")
        for name, divisor in (("root", tf.sqrt(size + 1.0)), ("constant", tf.constant(3.0)), ("value", tf.exp(size))):
            inner = tf.multiply(tf.sin(x), size, name=f"by_{name}/inner")
            tf.raw_ops.RealDiv(x=inner, y=divisor, name=f"by_{name}/outer")
            tf.reduce_sum(inner)  # not in every step
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    group_of = classify(view).group_of
    for name, together in (("root", True), ("constant", True), ("value", False)):
        outer = group_of.get(f"by_{name}/outer")
        assert (outer is not None and outer == group_of.get(f"by_{name}/inner")) == together, name


def test_what_nobody_wants_stays_with_the_sums_that_it_reads() -> None:
    """TensorFlow makes one sum of two where nobody waits for either; an exponent's gradient may, for which a tuple waits alone."""
    with tf.Graph().as_default() as graph:
        a, b = (tf.sin(tf.placeholder(tf.float32, [4]), name=name) for name in "ab")
        inner = tf.subtract(a, -b, name="inner")
        outer = tf.add(inner, tf.exp(a), name="outer")
        power = tf.pow(outer, 2.0, name="power")
        tf.gradients(power, a, tf.tanh(a, name="given"), gate_gradients=True)
        tf.tanh(outer, name="wanted")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    group_of = classify(view).group_of
    unwanted = ("Greater", "Log", "Select_1", "mul_3", "tuple/control_dependency_1")
    assert {group_of.get(f"gradients/power_grad/{name}") for name in unwanted} == {group_of["outer"]} == {group_of["inner"]}
    assert group_of.get("wanted") != group_of["outer"]


def test_what_undoes_broadcasting_stays_with_the_inner_term_whose_shape_it_asks_for_and_ties_no_layers() -> None:
    """Batches of unknown size: who asks for the inner one's shape reads it until Grappler knows that nothing was broadcast."""
    with tf.Graph().as_default() as graph:
        hidden = given = tf.placeholder(tf.float32, [None, 3])
        for k in range(3):
            inner = tf.divide(tf.tanh(hidden), tf.exp(hidden), name=f"inner{k}")
            hidden = tf.add(hidden, inner, name=f"layer{k}")
        tf.gradients(hidden, given, tf.tanh(given))
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    group_of = classify(view).group_of
    for k, scope in enumerate(f"gradients/layer{k}_grad/" for k in range(3)):
        together = (f"{scope}BroadcastGradientArgs", f"{scope}Sum", f"{scope}Reshape_1", f"layer{k}")
        assert {group_of.get(name) for name in together} == {group_of[f"inner{k}"]}, k
    assert len({group_of[f"layer{k}"] for k in range(3)}) == 3


def test_what_a_tuple_waits_for_alone_stays_with_the_product_behind_it() -> None:
    """A fed mask's gradient keeps the barrier there, and with it the Identity before a product that takes a constant."""
    with tf.Graph().as_default() as graph:
        x, mask = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 3])
        scores = tf.sin(x, name="scores")
        masked = tf.multiply(tf.exp(scores / 2.5, name="weights"), mask, name="masked")
        tf.gradients(masked, scores, tf.tanh(x * mask), gate_gradients=True)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    unwanted = {f"gradients/masked_grad/{name}" for name in ("Mul_1", "Sum_1", "Reshape_1", "tuple/group_deps")}
    assert any(unwanted | {"gradients/truediv_grad/RealDiv"} <= set(group) for group in classify(view).groups)


def test_who_waits_for_what_came_from_another_device_stays() -> None:
    """As in the gradient of scaled attention whose scores the program computes elsewhere: the constant's gradient, which nobody
    wants, is waited for, which says in which order Grappler has the factors."""
    with tf.Graph().as_default() as graph:
        x = tf.sin(tf.placeholder(tf.float32, [4, 4]))
        with tf.device("/cpu:0"):
            scores = tf.matmul(x, x, name="scores")
        with tf.device("/cpu:1"):
            weights = tf.nn.softmax(tf.multiply(scores, 0.35, name="scaled") + tf.cos(x))
            tf.gradients(weights, x, tf.tanh(x), gate_gradients=True)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    classes = classify(view, home=lambda node: node.device)
    waiting = {f"gradients/scores_grad/{name}" for name in ("MatMul", "MatMul_1")}
    assert any({"scores", "gradients/scaled_grad/Mul", *waiting} <= set(group) for group in classes.groups)
    assert "scores" in classes.pinned


@pytest.mark.parametrize("written", ["selu", "celu"])
def test_a_product_of_gradients_stays_with_the_tuples_that_it_takes_values_of(written: str) -> None:
    """With their ends taken out it is the product that waits, and that keeps Grappler from putting it in another order."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3], name="x")
        below = tf.multiply(1.67, tf.exp(x, name="exp"), name="scaled") - 1.67
        y = tf.where(x > 0.0, x, below, name="chosen") if written == "selu" else x + tf.minimum(0.0, below, name="chosen")
        tf.gradients(1.05 * y, x, tf.tanh(x), gate_gradients=True)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    group_of = classify(view).group_of
    together = ("scaled_grad/Mul_1", "chosen_grad/tuple/group_deps", "chosen_grad/tuple/control_dependency_1")
    assert {group_of.get(f"gradients/{name}") for name in together} == {group_of["gradients/exp_grad/mul"]}


def test_a_gradient_times_a_number_stays_with_all_that_its_tuples_wait_for() -> None:
    """Such as a leaky ReLU by hand, behind which a convolution gives its filter's gradient on another device: the tuple's end would
    wait, not the product, and Grappler would put that in another order."""
    with tf.Graph().as_default() as graph:
        kernels = [tf.get_variable(name, [3, 3, 4, 4], use_resource=True) for name in ("k", "l")]
        h = tf.nn.conv2d(tf.placeholder(tf.float32, [2, 8, 8, 4]), kernels[0], 1, "SAME", name="below")
        h = tf.add(0.6 * tf.identity(h), tf.multiply(0.4, tf.abs(h, name="abs"), name="part"))
        tf.train.GradientDescentOptimizer(0.1).minimize(tf.nn.conv2d(h, kernels[1], 1, "SAME", name="above"))
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    group_of = classify(view).group_of
    together = ("part_grad/Mul_1", "above_grad/Conv2DBackpropFilter", "above_grad/tuple/control_dependency", "abs_grad/mul")
    assert len({group_of[f"gradients/{name}"] for name in together}) == 1
    assert group_of.get("gradients/below_grad/Conv2DBackpropFilter") != group_of["gradients/part_grad/Mul_1"]


def test_a_tuple_that_the_program_has_on_several_devices_stays() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.sin(tf.placeholder(tf.float32, [4, 4]))
        ends = []
        for k in range(2):
            with tf.device(f"/cpu:{k}"):
                ends.append(tf.exp(x, name=f"of_{k}"))
        both = tf.tuple(ends, name="both")
        one = tf.tuple([tf.cos(x, name="a"), tf.sin(x, name="b")], name="one")
        for name, end in zip("pqrs", [*both, *one], strict=True):
            tf.sqrt(end, name=name)
        with tf.device("/cpu:0"):
            loss, updates = tf.cosh(x, name="loss"), tf.group(tf.tanh(x, name="t"), name="first")
        with tf.device("/cpu:1"), tf.control_dependencies([tf.group(updates, tf.sinh(x, name="u"))]):
            tf.identity(loss, name="behind")  # no tuple: a loss behind updates
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    classes = classify(view, home=lambda node: node.device)
    together = {"of_0", "of_1", "both/control_dependency", "both/control_dependency_1", "p", "q"}
    assert any(together <= set(group) for group in classes.groups)
    assert not any({"a", "b", "r", "s", "t", "u", "loss", "behind"} & set(group) for group in classes.groups)


def test_constants_of_a_loop_are_pushed_down_too(first_generation: None) -> None:
    """c - (a + b) becomes (c - b) - a; in a loop the constant waits for the round."""
    with tf.Graph().as_default() as graph:

        def body(k: Any, v: Any) -> tuple[Any, Any]:
            inner = tf.add(tf.log(v), tf.tanh(v), name="inner")
            return k + 1, tf.subtract(tf.constant(0.7), inner, name="outer")

        tf.while_loop(lambda k, _: k < 5, body, [0, tf.placeholder(tf.float32, [4])])
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    group_of = classify(view).group_of
    assert {group_of.get(f"while/{name}") for name in ("inner", "Log", "Tanh")} == {group_of["while/outer"]}


def test_a_bias_that_changes_places_with_a_constant_stays_with_its_layer() -> None:
    """conv + bias + constant becomes conv + constant + bias where all share a device."""
    with tf.Graph().as_default() as graph:
        weights, bias = (tf.get_variable(name, shape) for name, shape in (("w", [3, 2]), ("b", [2])))
        layer = tf.nn.bias_add(tf.matmul(tf.placeholder(tf.float32, [4, 3]), weights), bias, name="layer")
        tf.add(layer, tf.constant([0.3, 0.4]), name="shifted")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    group_of = classify(view).group_of
    assert group_of["shifted"] == group_of["layer"] == group_of["b"] != group_of.get("w")


def test_what_a_constant_is_pushed_into_stays_together_with_all_that_it_is_given() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3])
        a, b, c = (tf.reduce_max(x + float(k), 0, name=name) for k, name in enumerate("abc"))
        d, e = tf.reduce_min(x, 0, name="d"), tf.reduce_mean(x, 0, name="e")
        product = tf.multiply(a, b, name="product")
        tf.multiply(product, 0.3, name="scaled")
        tf.reduce_sum(product, name="another_reader")  # a step without it is rewritten
        tf.subtract(1.0, tf.add(tf.add(c, 0.1, name="inner"), tf.sin(a, name="sine"), name="outer"), name="rest")
        tf.multiply(tf.add(d, e, name="sum"), 0.3, name="not_alike")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    together = [set(group) for group in classify(view).groups]
    assert any({"a", "b", "product", "scaled"} <= group for group in together)
    assert any({"c", "inner", "sine", "outer", "rest"} <= group for group in together)
    assert not any({"another_reader", "d", "e"} & group for group in together)


def test_a_tuples_barrier_stays_with_what_a_constant_is_pushed_down_from() -> None:
    """As in the gradient of scaled attention."""
    with tf.Graph().as_default() as graph:
        x = tf.sin(tf.placeholder(tf.float32, [4, 4]))
        tf.gradients(tf.nn.softmax(tf.multiply(x, 0.35, name="scaled")), x, tf.tanh(x), gate_gradients=True)
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    pushed = {"gradients/scaled_grad/Mul", "gradients/Softmax_grad/mul_1", "gradients/scaled_grad/tuple/group_deps"}
    assert any(pushed <= set(group) for group in classify(view).groups)


def test_a_third_power_is_a_product_that_constants_are_pushed_into() -> None:
    """As in a GELU: x + 0.044715 * x ** 3."""
    with tf.Graph().as_default() as graph:
        x = tf.sin(tf.placeholder(tf.float32, [4]), name="x")
        scaled = tf.multiply(0.044715, tf.pow(x, 3.0, name="power"), name="scaled")
        tf.gradients(scaled, x, tf.tanh(x))  # takes the square of x, of which TensorFlow makes one with that in the power
        tf.sqrt(tf.pow(tf.cos(x, name="y"), 2.0, name="alone"))
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    together = [set(group) for group in classify(view).groups]
    assert any({"x", "power", "scaled", "gradients/power_grad/Pow"} <= group for group in together)
    assert not any({"y", "alone"} <= group for group in together)


def test_constants_are_pushed_through_what_undoes_no_broadcasting() -> None:
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [None, 3]), tf.placeholder(tf.float32, [None, 3])
        a, b = tf.sin(x, name="a"), tf.cos(y, name="b")
        tf.gradients((0.5 * a) * b, a, tf.exp(x * y, name="given"))  # (given * b) * 0.5, with a Sum and a Reshape in between
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    scaled, product = "gradients/mul_grad/Mul_1", "gradients/mul_1_grad/Mul"
    behind = {"given", "b", product, "gradients/mul_1_grad/Sum", "gradients/mul_1_grad/Reshape"}
    assert [group for group in map(set, classify(view).groups) if scaled in group and group >= behind]
