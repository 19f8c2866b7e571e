"""Sums of gradients of which some are only handed on are added up in a copy as they are plainly, whatever lies where."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine.settings import Chaos

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import terms  # noqa: E402
from stepd.hook.engine.graphview import GraphView  # noqa: E402


def gradients(seed: int) -> tuple[Any, Any]:
    """The gradient at a tensor that a random expression, of the kind of a bound on a likelihood, uses three times or more."""
    draw = random.Random(seed)
    x = tf.placeholder(tf.float32, [None, 5], name="x")
    scale = tf.placeholder_with_default(1.0, [], name="scale")
    shared = tf.tanh(x * tf.constant(np.linspace(-2, 2, 5, dtype=np.float32)), name="shared")
    other = tf.sin(x)
    code = other + tf.exp(0.5 * shared) * tf.cos(x)
    total = 1.0 + shared
    for term in draw.sample([tf.square(other), tf.exp(shared), tf.cos(other), tf.sinh(shared)], 3):
        total = draw.choice([total - term, total + term])
    bound = -0.5 * tf.reduce_sum(total, 1)
    loss = tf.reduce_mean(tf.reduce_sum(tf.nn.softplus(code), 1) + scale * bound)
    return x, tf.tanh(tf.gradients(loss, shared, gate_gradients=True)[0])


def values(seed: int) -> list[bytes]:
    with tf.Graph().as_default():
        x, result = gradients(seed)
        config = tf.ConfigProto(device_count={"CPU": 3})
        data = np.random.RandomState(seed)
        with tf.Session(config=config) as session:
            return [session.run(result, {x: data.randn(40, 5)}).tobytes() for _ in range(10)]


@pytest.mark.parametrize("seed", range(8))
def test_gradients_keep_their_bits(hooked: Any, seed: int) -> None:
    expected = values(seed)
    listener = hooked(chaos=Chaos(1, "in-session", seed=seed, devices=3))
    assert values(seed) == expected
    assert any(s.ok and not s.rollback for s in listener.switches)


def test_a_term_that_is_handed_on_may_sort_elsewhere() -> None:
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        handed = tf.reshape(tf.sin(x, name="a"), [4], name="z")
        tf.add_n([handed, tf.cos(x, name="m"), tf.tanh(x, name="n")], name="unsure")
        tf.add_n([tf.sinh(x, name="p"), tf.cosh(x, name="q"), tf.atan(x, name="r")], name="sure")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    assert terms.uncertain(view) == {"unsure": (("z", "a"), ("m",), ("n",))}


def two_passes() -> tuple[Any, list[Any], list[Any]]:
    """Two optimizers, each with its own backward pass of one loss, of which Grappler makes one in part: terms of sums of three.
    What is fed, the train ops, the variables."""
    draw = np.random.RandomState(3)
    x = tf.placeholder(tf.float32, [7, 5], name="x")
    a, b = (tf.Variable(draw.randn(5, 6).astype(np.float32), name=name) for name in "ab")
    weights = tf.constant(0.4 * draw.randn(12, 24).astype(np.float32))
    seen = tf.matmul(x, a) * 0.65 + tf.matmul(x, b) * 1.21
    output = state = tf.zeros([7, 6])
    for _ in range(2):
        gate, value, forget, out = tf.split(tf.matmul(tf.concat([seen, output], 1), weights), 4, 1)
        state = tf.sigmoid(forget + 1.0) * state + tf.sigmoid(gate) * tf.tanh(value)
        output = tf.sigmoid(out) * tf.tanh(state)
    loss = tf.reduce_mean(tf.square(tf.concat([seen, output, state], 1)))
    one = tf.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[a])
    return x, [one, tf.train.AdamOptimizer(0.01).minimize(loss, var_list=[b])], [a, b]


def trained(config: Any, before: Callable[[Callable[[], Any]], Any] = lambda step: None, alone: bool = False) -> list[bytes]:
    """The variables after six steps of both optimizers, begun after `before`, which may run steps of its own. `alone`: each runs by
    itself, too."""
    with tf.Graph().as_default():
        x, trains, variables = two_passes()
        data = np.random.RandomState(5)
        with tf.Session(config=config) as session:

            def step() -> None:
                fed = {x: data.randn(7, 5)}
                for train in [*trains, trains] if alone else [trains]:
                    session.run(train, fed)

            session.run(tf.global_variables_initializer())
            for _ in range(2):
                step()
            before(step)
            data.seed(6)
            session.run(tf.global_variables_initializer())
            for _ in range(6):
                step()
            return [value.tobytes() for value in session.run(variables)]


def test_twins_that_are_one_in_part_are_one_in_part_in_a_copy(hooked: Any, reply: Any, two_devices: Any) -> None:
    """Where the first pass begins lies elsewhere: in the copy more, or fewer, would be made one, and sums would sort otherwise."""
    from stepd.hook.model import LiveStrategy, Way

    expected = trained(two_devices)
    listener = hooked()

    def switch(step: Any) -> None:
        engine = listener.engines[0]
        strategy = LiveStrategy("s", {"gradients/grad_ys_0": engine.devices()[1].name})
        engine.request_switch(strategy, Way.IN_SESSION, reply)
        while not reply.came():
            step()
            reply.pause()
        assert reply.wait().ok
        plan = engine.switcher().live.plan
        assert plan.sums == {"gradients/AddN_2": (1, 2, 0), "gradients_1/AddN_2": (1, 0, 2)}, "plainly they sort by other names"
        assert {"gradients/AddN_2", "gradients_1/AddN_2"} <= plan.apart

    assert trained(two_devices, switch) == expected


def test_one_copy_for_steps_that_add_up_in_different_orders_is_refused(hooked: Any, reply: Any, two_devices: Any) -> None:
    """By itself the first optimizer's pass has no twin whose name its terms could sort by."""
    from stepd.hook.model import LiveStrategy, Way

    expected = trained(two_devices, alone=True)
    listener = hooked()

    def switch(step: Any) -> None:
        engine = listener.engines[0]
        strategy = LiveStrategy("s", {"gradients/grad_ys_0": engine.devices()[1].name})
        engine.request_switch(strategy, Way.IN_SESSION, reply)
        while not reply.came():
            step()
            reply.pause()
        assert "the steps add up the sum gradients/AddN_2 in different orders" in reply.wait().error

    assert trained(two_devices, switch, alone=True) == expected


def test_a_copy_adds_up_in_the_order_of_the_plain_graph(hooked: Any, reply: Any, two_devices: Any) -> None:
    from stepd.hook.model import LiveStrategy, Way

    listener = hooked()
    x = tf.placeholder(tf.float32, [4], name="x")
    handed = tf.reshape(tf.sin(x, name="a"), [4], name="z")
    total = tf.add_n([tf.cos(x, name="m"), handed, tf.tanh(x, name="n")], name="total")
    with tf.Session(config=two_devices) as session:
        for _ in range(2):
            session.run(total, {x: np.ones(4)})
        engine = listener.engines[0]
        device = engine.devices()[1].name
        engine.request_switch(LiveStrategy("s", {"n": device}), Way.IN_SESSION, reply)
        while not reply.came():
            session.run(total, {x: np.ones(4)})
            reply.pause()
        assert reply.wait().ok
        assert engine.switcher().live.plan.sums == {"total": (1, 0, 2)}, "a goes before m and n"


@pytest.mark.parametrize("dtype", [tf.float16, tf.float64])
def test_a_cast_among_the_terms_keeps_its_place(dtype: Any, hooked: Any, two_devices: Any) -> None:
    """Grappler lets a cast and an op of another shape change places, and names them anew; what hands a cast on in a copy, too."""

    def run() -> list[bytes]:
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [4, 16])
            other = tf.reshape(tf.tanh(tf.cast(x, dtype)), [64])
            handed = tf.reshape(tf.sin(x, name="p"), [4, 16], name="b")
            shaped = tf.reshape(other * other, [4, 16], name="z/shaped")
            total = tf.add_n([tf.cos(x, name="n"), tf.cast(shaped, tf.float32, name="a"), handed, tf.exp(x, name="o")])
            data = np.random.RandomState(1)
            with tf.Session(config=two_devices) as session:
                return [session.run(total, {x: data.randn(4, 16)}).tobytes() for _ in range(12)]

    expected = run()
    listener = hooked(chaos=Chaos(1, "in-session", seed=1, devices=2))
    assert run() == expected
    assert any(s.ok and not s.rollback for s in listener.switches)


def test_a_new_step_with_an_unknown_sum_ends_a_strategy_and_says_so(hooked: Any, reply: Any, two_devices: Any) -> None:
    from stepd.hook.model import LiveStrategy, Way

    listener = hooked()
    x = tf.placeholder(tf.float32, [4], name="x")
    one = tf.negative(tf.cos(x, name="m"), name="one")
    unsure = tf.add_n([tf.cos(x, name="p"), tf.reshape(tf.sin(x, name="a"), [4], name="z"), tf.tanh(x, name="q")], name="unsure")
    with tf.Session(config=two_devices) as session:
        session.run(one, {x: np.ones(4)})
        engine = listener.engines[0]
        device = engine.devices()[1].name
        engine.request_switch(LiveStrategy("s", {"m": device, "q": device}), Way.IN_SESSION, reply)
        while not reply.came():
            session.run(one, {x: np.ones(4)})
            reply.pause()
        assert reply.wait().ok
        session.run(unsure, {x: np.ones(4)})
        ((failed, why),) = listener.failed
        assert failed == "s" and engine.strategy_id == ""
        assert "the sum unsure, whose order is not known" in why


def test_the_run_that_ended_a_strategy_has_not_shown_how_it_adds_up(hooked: Any, reply: Any, two_devices: Any) -> None:
    """It had begun under the strategy, so that it was not asked: the next switch waits for a run that is."""
    from stepd.hook.engine import requests
    from stepd.hook.model import LiveStrategy, Way

    listener = hooked()
    x = tf.placeholder(tf.float32, [4], name="x")
    one = tf.negative(tf.cos(x, name="m"), name="one")
    unsure = tf.add_n([tf.cos(x, name="p"), tf.reshape(tf.sin(x, name="a"), [4], name="z"), tf.tanh(x, name="q")], name="unsure")
    with tf.Session(config=two_devices) as session:
        session.run(one, {x: np.ones(4)})
        engine = listener.engines[0]
        device = engine.devices()[1].name
        strategy = LiveStrategy("s", {"m": device, "q": device})
        engine.request_switch(strategy, Way.IN_SESSION, reply)
        while not reply.came():
            session.run(one, {x: np.ones(4)})
            reply.pause()
        session.run(unsure, {x: np.ones(4)})
        assert engine.strategy_id == ""
        for shown in (False, True):
            with engine.lock:
                outcome = requests.switch_now(engine, engine.switcher(), strategy, engine.kinds.all())
            assert outcome.ok == shown and (shown or "the sum unsure, whose order is not known" in outcome.error)
            session.run(unsure, {x: np.ones(4)})
        assert engine.switcher().live.plan.sums == {"unsure": (1, 0, 2)}


def test_a_switch_before_a_run_that_was_to_be_plain_leaves_nothing_behind(hooked: Any) -> None:
    """What such a run shows is of a copy: no order is learnt of it, and no later buffer of the program's reads as it."""
    from stepd.hook.engine import capi

    listener = hooked(chaos=Chaos(1, "in-session", seed=2, devices=2))
    x = tf.placeholder(tf.float32, [4], name="x")
    ends = [tf.add_n([tf.sin(x + float(k)), tf.cos(x - float(k)), x * float(k)], name=f"end{k}") for k in range(4)]
    with tf.Session() as session:
        engine = listener.engines[0]
        for end in ends:  # each run is the first of its kind: it is asked for what a plain run shows
            session.run(end, {x: np.ones(4)})
        assert any(s.ok and not s.rollback for s in listener.switches)
        routes = {kind.step: kind.route for kind in engine.kinds.all() if kind.route is not None}
        on_copies = [step for step, route in routes.items() if capi.output_name(route.fetches[0]) not in step.fetches]
        assert on_copies and engine.known.seen.isdisjoint(on_copies)
    assert not capi.repaired_buffers


def test_metadata_that_the_program_never_read_goes_with_its_buffer(hooked: Any) -> None:
    from stepd.hook.engine import capi

    hooked()
    buffer = capi.c.TF_NewBuffer()
    capi.repaired_buffers[buffer] = b"of a run that was interrupted"
    capi.c.TF_DeleteBuffer(buffer)
    assert not capi.repaired_buffers


def test_a_sum_for_another_process_is_sent_by_an_op_beside_it() -> None:
    """TensorFlow's AddN begins with another term where its own output is what is sent."""
    from stepd.hook.engine.copy import copied_nodes

    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [4], name="x")
        total = tf.add_n([tf.sin(x), tf.cos(x), tf.tanh(x)], name="total")
        for name in ("here", "beside", "there"):
            tf.negative(total, name=name)
        tf.negative(tf.identity(total, name="handed"), name="beyond")
        tf.negative(tf.add_n([x, x], name="two"), name="of_two")
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    worker = "/job:localhost/replica:0/task:{}/device:CPU:{}".format
    places = {"beside": worker(0, 1), **dict.fromkeys(("there", "of_two", "beyond"), worker(1, 0))}
    names = ["total", "two", "here", "beside", "there", "handed", "beyond", "of_two"]
    nodes = copied_nodes(view, names, {}, "stepd_1", places, device=lambda name: places.get(name, worker(0, 0)))
    made = {node.name: node for node in nodes}
    (sender,) = made.keys() - {f"{name}-stepd_1" for name in names}
    assert (made[sender].op, list(made[sender].input), made[sender].device) == (
        "DebugGradientIdentity",
        ["total-stepd_1"],
        worker(0, 0),
    )
    assert list(made["there-stepd_1"].input) == [sender]
    assert list(made["handed-stepd_1"].input) == [sender], "Grappler takes it out, and sends what it is given"
    assert list(made["here-stepd_1"].input) == list(made["beside-stepd_1"].input) == ["total-stepd_1"]
    assert list(made["of_two-stepd_1"].input) == ["two-stepd_1"], "the order of two terms does not matter"
