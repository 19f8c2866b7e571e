"""Which ops of gradients and loops share a device, because Grappler puts products in another order there; and which need not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.classify import classify
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")


def group_of(graph: Any) -> dict[str, str]:
    view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    groups = classify(view).group_of
    return {name: groups.get(name, f"{name} alone") for name in view.nodes}


@pytest.mark.parametrize(("rows", "waiting"), [(4, False), (None, False), (None, True)])
def test_products_of_gradients_meet_behind_a_tuple_whose_other_end_nobody_wants(rows: int | None, waiting: bool) -> None:
    """0.9 * softplus(x): (0.9 * g) * sigmoid(x) becomes (0.9 * sigmoid(x)) * g, once the gradient of 0.9 is out of the way; what
    makes g is read for that one, too."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [rows, 3])
        scaled = tf.multiply(0.9, tf.nn.softplus(x, name="soft"), name="scaled")
        loss = tf.reduce_mean(tf.log(0.1 + scaled) + tf.square(scaled))
        with tf.control_dependencies([loss] if waiting else []):  # so does every barrier then
            tf.gradients(loss, x, gate_gradients=True)
    together = group_of(graph)
    product = "gradients/soft_grad/mul"
    assert graph.get_operation_by_name(product).inputs[0].op.name == "gradients/scaled_grad/tuple/control_dependency_1"
    beside = ("Mul_1", "Mul", "tuple/group_deps", "tuple/control_dependency_1")
    assert {together[f"gradients/scaled_grad/{name}"] for name in beside} == {together[product]}
    sums = [op.name for op in graph.get_operations() if op.type == "AddN"]
    assert sums and {together[name] for name in sums} == {together[product]}


@pytest.mark.parametrize("looked_at", [False, True], ids=["unseen", "looked_at"])
@pytest.mark.parametrize("rows", [4, None])
@pytest.mark.parametrize("scaled", [lambda x: x / 6.0, lambda x: x * 0.5], ids=["divided", "multiplied"])
def test_whom_a_product_waits_for_in_vain_lies_beside_it_with_the_tuple_that_hands_on_this_wait(
    scaled: Any, rows: int | None, looked_at: bool
) -> None:
    """x * relu6(x + 3) / 6: nobody wants the gradient of 6, for which the product is read, or only some steps do. As long as the
    tuple's readers wait for that, the three factors stay in their order."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [rows, 3])
        updated = tf.raw_ops.NoOp(name="updated")
        product = tf.multiply(x, tf.nn.relu6(x + 3.0), name="product")
        hidden = scaled(product)
        loss = tf.reduce_mean(tf.nn.tanh(hidden)) + tf.reduce_mean(tf.sin(hidden))
        with tf.control_dependencies([updated]):
            tf.gradients(loss, x, gate_gradients=True)
    together = group_of(graph)
    barrier = "gradients/truediv_grad" if "truediv" in together else "gradients/mul_grad"
    end = graph.get_operation_by_name(f"{barrier}/tuple/control_dependency")
    undone = end.inputs[0].op.type == "Reshape"  # where sizes are not known, and in older versions always
    beside = (*(("Sum", "Reshape") if undone else ()), "tuple/group_deps", "tuple/control_dependency")
    readers = ("gradients/product_grad/Mul", "gradients/product_grad/Mul_1")
    if looked_at:
        with graph.as_default():
            tf.sqrt(graph.get_operation_by_name(f"{barrier}/tuple/control_dependency_1").inputs[0], name="seen")
        together = group_of(graph)
    assert {together[name] for name in (*(f"{barrier}/{name}" for name in beside), *readers)} == {together["product"]}


def test_products_of_gradients_stay_apart_where_both_ends_of_a_tuple_are_wanted() -> None:
    with tf.Graph().as_default() as graph:
        x, y = (tf.placeholder(tf.float32, [4, 3], name=name) for name in "xy")
        scaled = tf.multiply(tf.nn.softplus(y), tf.nn.softplus(x, name="soft"), name="scaled")
        tf.gradients(scaled, [x, y], tf.placeholder(tf.float32, [4, 3]), gate_gradients=True)
    together = group_of(graph)
    assert together["gradients/soft_grad/mul"] != together["gradients/scaled_grad/Mul_1"]


def test_constants_that_a_loop_is_given_are_pushed_down_in_it(first_generation: None) -> None:
    with tf.Graph().as_default() as graph:
        start = -tf.log(tf.constant([2.0, 3.0, 4.0, 5.0]), name="start")

        def body(k: Any, v: Any) -> tuple[Any, Any]:
            return k + 1, tf.subtract(start, tf.add(tf.log(v), tf.tanh(v), name="inner"), name="outer")

        tf.while_loop(lambda k, _: k < 5, body, [0, tf.placeholder(tf.float32, [4])])
    together = group_of(graph)
    assert {together[f"while/{name}"] for name in ("inner", "Log", "Tanh", "outer/Enter")} == {together["while/outer"]}


def test_what_layers_compute_of_equal_constants_ties_them_not_together() -> None:
    """A gelu's gradient asks for 3 - 1, in every layer."""
    with tf.Graph().as_default() as graph:
        x = hidden = tf.placeholder(tf.float32, [4, 3])
        for k in range(2):
            inner = tf.tanh(0.8 * (hidden + 0.04 * tf.pow(hidden, 3.0, name=f"cube{k}")), name=f"layer{k}")
            hidden = tf.cumsum(0.5 * hidden * (1.0 + inner))
        tf.gradients(hidden, x, gate_gradients=True)
    together = group_of(graph)
    assert graph.get_operation_by_name("gradients/cube0_grad/sub").type == "Sub"
    assert together["layer0"] != together["layer1"] and together["cube0"] != together["cube1"]
    assert together["gradients/cube0_grad/sub"] == together["gradients/cube0_grad/Pow"] != together["gradients/cube1_grad/sub"]


def test_constants_that_wait_are_folded_and_stay_with_what_their_tuple_waits_for() -> None:
    """In a scope that waits for the loss every constant of the gradients does: (0.5 / 12) * (2 * x) is one product for all that."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3])
        loss = tf.reduce_mean(tf.multiply(0.5, tf.square(tf.tanh(x), name="squared"), name="scaled"))
        with tf.control_dependencies([loss]):
            tf.gradients(loss, x, gate_gradients=True)
    together = group_of(graph)
    assert (
        together["gradients/squared_grad/Mul"] == together["gradients/squared_grad/Mul_1"] == together["gradients/scaled_grad/Sum"]
    )


def test_what_a_constant_goes_down_into_lies_with_the_barrier_behind_which_it_takes_its_value() -> None:
    """-0.5 * (exp(...) * (0.3 * -g)): elsewhere the barrier of -g's tuple would put off what Grappler does to 0.3 * -g."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3])
        bell = tf.multiply(0.3, tf.exp(-0.5 * tf.square(x)), name="bell")
        tf.gradients(tf.tanh(tf.subtract(tf.nn.softplus(x), bell, name="both")), x, gate_gradients=True)
    together = group_of(graph)
    product = graph.get_operation_by_name("gradients/bell_grad/Mul_1")
    assert product.inputs[1].op.name == "gradients/both_grad/tuple/control_dependency_1"
    assert together["gradients/both_grad/tuple/group_deps"] == together[product.name]


def between(name: str, value: Any) -> Any:
    """Something that hands `value`, of shape 4 x 3, on as it is; `name` is that of what does it."""
    ways: dict[str, Any] = {
        "reshape": lambda: tf.reshape(value, [4, -1], name=name),
        "tile": lambda: tf.tile(value, [1, 1], name=name),
        "pad": lambda: tf.pad(value, [[0, 0], [0, 0]], name=name),
        "transpose": lambda: tf.transpose(value, [0, 1], name=name),
        "turned": lambda: tf.transpose(tf.transpose(value), name=name),
        "negated": lambda: tf.negative(-value, name=name),
        "split": lambda: tf.split(value, 1, 1, name=name)[0],
        "mean": lambda: tf.reduce_mean(value, [], name=name),
        "reverse": lambda: tf.reverse(value, [], name=name),
        "where": lambda: tf.where_v2(tf.zeros([4, 3], tf.bool), value * value, value, name=name),
        "cast": lambda: tf.raw_ops.Cast(x=value, DstT=tf.float32, name=name),
        "recast": lambda: tf.bitcast(tf.bitcast(value, tf.int32), tf.float32, name=name),
        "several": lambda: tf.raw_ops.IdentityN(input=[tf.zeros([2]), value], name=name)[1],
        "one": lambda: tf.raw_ops.AddN(inputs=[value], name=name),
        "computed": lambda: tf.pad(value, tf.zeros_like(tf.shape([[0, 0], [0, 0]])) * tf.ones([2, 1], tf.int32), name=name),
    }
    return ways[name]()


WAYS = ("reshape", "tile", "pad", "transpose", "turned", "negated", "split", "mean", "reverse", "where", "cast")


@pytest.mark.parametrize("way", [*WAYS, "recast", "several", "computed", "one"])
def test_what_changes_nothing_lies_with_the_two_that_meet_without_it(way: str) -> None:
    with tf.Graph().as_default() as graph:
        x, w, b = (tf.placeholder(tf.float32, shape) for shape in ([4, 5], [5, 3], [3]))
        tf.nn.bias_add(between(way, tf.matmul(x, w, name="product")), b, name="biased")
    together = group_of(graph)
    assert together["product"] == together[way] == together["biased"]


@pytest.mark.parametrize("way", ["tile", "pad", "transpose", "split", "mean"])
def test_what_changes_something_ties_nothing(way: str) -> None:
    changing: dict[str, Any] = {
        "tile": lambda value: tf.tile(value, [1, 2]),
        "pad": lambda value: tf.pad(value, [[0, 0], [0, 1]]),
        "transpose": lambda value: tf.transpose(value, [1, 0]),
        "split": lambda value: tf.split(value, 3, 1)[0],
        "mean": lambda value: tf.reduce_mean(value, [0], keepdims=True),
    }
    with tf.Graph().as_default() as graph:
        x, w = (tf.placeholder(tf.float32, shape) for shape in ([4, 5], [5, 3]))
        value = changing[way](tf.matmul(x, w, name="product"))
        tf.nn.bias_add(value, tf.placeholder(tf.float32, [value.shape[-1]]), name="biased")
    together = group_of(graph)
    assert together["product"] != together["biased"]


def test_a_constant_goes_into_a_sum_of_one_value_and_into_a_constant_filter() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [1, 4, 4, 1])
        tf.multiply(tf.add_n([tf.square(x, name="square")] * 5, name="sum"), 0.7, name="scaled")
        tf.divide(tf.nn.conv2d(x, tf.ones([2, 2, 1, 1]), 1, "SAME", name="blurred"), 9.0, name="mean")
        different = tf.add_n([tf.sin(x), tf.cos(x)], name="different")
        tf.cumsum(tf.multiply(different, 0.9, name="apart") + tf.cumsum(different))
    together = group_of(graph)
    assert together["square"] == together["sum"] == together["scaled"]
    assert together["blurred"] == together["mean"]
    assert together["different"] != together["apart"]


def test_what_a_body_that_is_put_inline_meets_stays_with_the_call() -> None:
    with tf.Graph().as_default() as graph:
        x, v = (tf.placeholder(tf.float32, [4, 3], name=name) for name in "xv")
        call = tf.function(lambda t: t * 0.3)(tf.multiply(tf.tanh(x, name="maker"), v, name="product")).op
        tf.multiply(call.outputs[0], 0.7, name="scaled")
        tf.gather(call.outputs[0], [0], name="other")
    together = group_of(graph)
    assert together["maker"] == together["product"] == together[call.name] == together["scaled"]
    assert together["other"] != together[call.name]


def test_what_stands_before_a_call_that_hands_on_its_argument_meets_what_stands_behind_it() -> None:
    with tf.Graph().as_default() as graph:
        x, v = (tf.placeholder(tf.float32, [4, 3], name=name) for name in "xv")
        call = tf.function(lambda t: (tf.identity(t), tf.exp(t)))(tf.multiply(tf.tanh(x, name="maker"), v, name="product"))
        tf.multiply(call[0], 0.7, name="scaled")
        other = tf.function(tf.exp)(tf.multiply(tf.tanh(x), v, name="other_product"))
        tf.multiply(other, 0.7, name="other_scaled")
    together = group_of(graph)
    assert together["maker"] == together["product"] == together[call[0].op.name] == together["scaled"]
    assert together["other_product"] != together["other_scaled"]


def test_what_computes_an_exponent_lies_with_the_third_power() -> None:
    """The square in its gradient is one only once the exponent is known, and shares a device with what the third power becomes."""
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3])
        scaled = tf.multiply(tf.pow(x, tf.constant(1.0) + 2.0, name="cube"), 0.3, name="scaled")
        tf.gradients(tf.square(scaled), x)
    together = group_of(graph)
    assert together["gradients/cube_grad/sub"] == together["cube"] == together["scaled"]


@pytest.mark.parametrize(
    "flat",
    [lambda t: tf.reshape(t, [-1, 8]), lambda t: tf.transpose(tf.transpose(t)), lambda t: tf.squeeze(tf.expand_dims(t, 0), 0)],
    ids=["reshaped", "transposed", "squeezed"],
)
def test_a_sum_of_sums_behind_what_changes_nothing_lies_beside_what_these_wait_for(flat: Any) -> None:
    """Two heads on each of two copies of a layer: one sum of four gradients, unless the inner two wait for something elsewhere."""
    with tf.Graph().as_default() as graph:
        layer = tf.tanh(tf.get_variable("v", [4, 8], initializer=tf.zeros_initializer()), name="layer")
        heads = []
        for i in range(4):
            if i % 2 == 0:
                copy = flat(layer)
            w = tf.get_variable(f"w{i}", [8, 3 + i], initializer=tf.zeros_initializer())
            heads.append(tf.matmul(copy, w, name=f"head{i}"))
        loss = tf.add_n([tf.reduce_sum(tf.square(head)) for head in heads])
        tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss)
    together = group_of(graph)
    *inner, total = [op for op in graph.get_operations() if op.type == "AddN" and op.name.startswith("gradients/")]
    assert len(inner) == 2 and not {t.op for t in total.inputs} & {*inner}
    beside = [
        f"gradients/head{i}_grad/{name}" for i in range(4) for name in ("MatMul", "tuple/group_deps", "tuple/control_dependency")
    ]
    assert {together[name] for name in beside} == {together[total.name]}


@pytest.mark.parametrize("start", ["a constant", "one unless fed", "fed", "fed by default"])
def test_what_is_computed_of_constants_alone_is_folded_as_a_whole(start: str) -> None:
    """Folded ops have other kernels than ops that run, and what is half folded is rewritten; whole numbers are whole either way."""
    with tf.Graph().as_default() as graph:
        x = tf.constant([1.0, 2.0, 3.0], name="x")
        if start == "one unless fed":
            x = tf.placeholder_with_default(x, [3])
        elif start == "fed":
            x = tf.placeholder(tf.float32, [3])
        elif start == "fed by default":
            x = tf.placeholder_with_default(tf.placeholder(tf.float32, [3]), [3])
        tf.cumsum(tf.sqrt(x, name="root"), name="sums")
        tf.add(tf.constant(1, name="one"), 2, name="three")
    together = group_of(graph)
    assert (together["root"] == together["sums"]) is (not start.startswith("fed"))
    assert together["one"] != together["three"]


def test_what_a_loop_computes_of_constants_that_it_is_given_is_a_constant_there() -> None:
    """It is multiplied with the constants of the round: a detector's boxes, made of offsets and the table of its anchors."""
    with tf.Graph().as_default() as graph:
        table = tf.constant(np.arange(8.0).reshape(4, 2).astype(np.float32))

        def box(offsets: Any) -> Any:
            return tf.multiply(
                tf.multiply(offsets, 0.5, name="half"), tf.subtract(table[:, 0], table[:, 1], name="width"), name="boxes"
            )

        tf.disable_control_flow_v2()
        tf.map_fn(box, tf.placeholder(tf.float32, [3, 4]), parallel_iterations=1)
    together = group_of(graph)
    assert together["map/while/half"] == together["map/while/boxes"] == together["map/while/width"]


def test_what_becomes_one_op_for_hashing_numbers_lies_together() -> None:
    with tf.Graph().as_default() as graph:
        text = tf.as_string(tf.placeholder(tf.int64, [3]), name="text")
        tf.strings.to_hash_bucket_fast(text, 16, name="hashed")
    together = group_of(graph)
    assert together["text"] == together["hashed"]


def test_a_sum_of_sums_lies_together_where_else_only_a_constants_gradient_reads_the_inner_one() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4, 3])
        h = tf.tanh(tf.tanh(x))
        less = h - 0.5
        loss = tf.reduce_sum(tf.sin(less) + less * tf.exp(less)) + tf.reduce_sum(tf.square(h))
        tf.gradients(loss, [x])
        nodes = {op.name: op for op in graph.get_operations()}
    groups = group_of(graph)
    inner, outer = (name for name, op in nodes.items() if op.type == "AddN")
    assert groups[inner] == groups[outer]


def test_who_asks_for_the_shape_of_a_factor_lies_with_the_products_that_may_change_places() -> None:
    def groups(rows: int | None) -> dict[str, str]:
        with tf.Graph().as_default() as graph:
            h = tf.tanh(tf.placeholder(tf.float32, [rows, 3]))
            mean = tf.reduce_mean(h, 1, keepdims=True, name="mean")
            tf.gradients(tf.reduce_sum(tf.multiply(h * h, mean, name="product")), [h])
        return group_of(graph)

    found = groups(None)
    assert found["mean"] == found["gradients/product_grad/Mul"]
    found = groups(4)
    assert found["mean"] != found["gradients/product_grad/Mul"]


def test_a_negation_lies_with_the_sums_that_take_it() -> None:
    with tf.Graph().as_default() as graph:
        x, y = tf.placeholder(tf.float32, [4]), tf.placeholder(tf.float32, [4])
        negated = tf.negative(x, name="negated")
        tf.add(y, tf.stop_gradient(negated), name="sum")
        tf.subtract(y, tf.tuple([negated, y])[0], name="difference")
        tf.reduce_sum(negated, name="apart")
    found = group_of(graph)
    assert found["negated"] == found["sum"] == found["difference"] != found["apart"]
