"""One session, switched and rolled back: values, placement, variables that move, restart, and what the program gets to see."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import capi, names
from stepd.hook.engine.settings import Chaos
from stepd.hook.model import LiveStrategy, Way

tf = pytest.importorskip("tensorflow.compat.v1")


def model(use_resource: bool = True) -> tuple[Any, Any, Any, Any]:
    """(x, w, loss, train) of a small network with Adam."""
    x = tf.placeholder(tf.float32, [None, 6], name="x")
    start = np.random.RandomState(0).randn(6, 3).astype(np.float32)
    w = tf.get_variable("w", initializer=start, use_resource=use_resource)
    loss = tf.reduce_mean(tf.square(tf.nn.relu(tf.matmul(x, w))), name="loss")
    return x, w, loss, tf.train.AdamOptimizer(0.1).minimize(loss, name="train")


def batches(steps: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.RandomState(1)
    return [random.randn(4, 6).astype(np.float32) for _ in range(steps)]


def train(session: Any, x: Any, loss: Any, step: Any, fed: list[Any]) -> list[bytes]:
    return [session.run([loss, step], {x: batch})[0].tobytes() for batch in fed]


def plain_losses(steps: int) -> list[bytes]:
    with tf.Graph().as_default(), tf.Session() as session:
        x, _, loss, step = model()
        session.run(tf.global_variables_initializer())
        return train(session, x, loss, step, batches(steps))


def everything_on(engine: Any, device: str, id_: str = "all") -> LiveStrategy:
    pinned = engine.describe().pinned
    names = [op.name for op in engine.mirror.user_graph.get_operations() if op.name not in pinned]
    return LiveStrategy(id_, dict.fromkeys(names, device))


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_switch_moves_ops_and_variables_and_no_bit_changes(hooked: Any, reply: Any, two_devices: Any, use_resource: bool) -> None:
    expected = plain_losses(8)
    listener = hooked()
    x, _, loss, step = model(use_resource)
    before = tf.get_default_graph().as_graph_def().SerializeToString(deterministic=True)
    init = tf.global_variables_initializer()
    after = tf.get_default_graph().as_graph_def().SerializeToString(deterministic=True)
    with tf.Session(config=two_devices) as session:
        session.run(init)
        got = train(session, x, loss, step, batches(8)[:3])
        (engine,) = listener.engines
        other = engine.devices()[1].name
        engine.request_switch(everything_on(engine, other), Way.AUTO, reply)
        while engine.strategy_id == "" and not reply.came():
            threading.Event().wait(0.01)
        got += train(session, x, loss, step, batches(8)[3:6])
        outcome = reply.wait()
        assert outcome.ok and outcome.honoured > 20 and outcome.not_honoured == ()
        assert engine.switcher().homes.at["w"] == other
        back = type(reply)()
        engine.request_rollback("test", back)
        assert back.wait().ok and engine.switcher().homes.at == {}
        got += train(session, x, loss, step, batches(8)[6:])
        assert tf.get_default_graph().as_graph_def().SerializeToString(deterministic=True) == after != before
    assert got == expected
    assert [r.strategy_id for r in listener.records[1:]] == [""] * 3 + ["all"] * 3 + [""] * 2


@pytest.mark.parametrize("way", [Way.IN_SESSION, Way.RESTART])
def test_a_strategy_for_which_nothing_had_to_be_copied_yet_is_in_force_for_what_comes_later(
    hooked: Any, reply: Any, two_devices: Any, way: Way
) -> None:
    expected = plain_losses(3)
    listener = hooked()
    x, _, loss, step = model()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        (engine,) = listener.engines
        other = engine.devices()[1].name
        engine.request_switch(everything_on(engine, other), way, reply)
        for _ in range(1000):
            if engine.strategy_id == "all":
                break
            reply.pause()
        assert engine.strategy_id == "all" and engine.switcher().homes.at["w"] == other
        assert train(session, x, loss, step, batches(3)) == expected
        outcome = reply.wait()
        assert outcome.ok and outcome.honoured > 20 and outcome.not_honoured == ()


@pytest.mark.parametrize("way", ["in-session", "restart", "both"])
def test_chaos_switches_and_changes_no_bit(hooked: Any, way: Any, tmp_path: Any) -> None:
    expected = plain_losses(12)
    listener = hooked(chaos=Chaos(2, way, seed=3, devices=3), state_dir=tmp_path)
    x, w, loss, step = model()
    never = tf.get_variable("never", [2], use_resource=True)
    numbers = tf.data.make_initializable_iterator(tf.data.Dataset.range(40).shuffle(9, seed=4))
    element = numbers.get_next()
    order = []
    with tf.Session() as session:
        session.run([w.initializer, numbers.initializer])
        session.run([v.initializer for v in tf.global_variables() if v is not never])
        got = []
        for batch in batches(12):
            got += train(session, x, loss, step, [batch])
            order.append(int(session.run(element)))
        with pytest.raises(tf.errors.FailedPreconditionError, match="never") as caught:
            session.run(never)
        assert "stepd" not in caught.value.message
    assert got == expected
    assert len(set(order)) == 12, "an element came twice or was lost"
    done = [s for s in listener.switches if s.ok]
    assert len(done) >= 8 and {s.way for s in done} <= {Way.IN_SESSION, Way.RESTART}
    assert way == "in-session" or any(s.way is Way.RESTART for s in done)
    assert not any(tmp_path.iterdir()), "a checkpoint was left behind"


def test_no_update_is_lost_when_threads_run_through_switches(hooked: Any) -> None:
    hooked(chaos=Chaos(5, "in-session", seed=1, devices=3))
    total = tf.get_variable("total", initializer=np.float32(0), use_resource=True)
    add = total.assign_add(1.0, read_value=False)
    with tf.Session() as session:
        session.run(total.initializer)
        threads = [threading.Thread(target=lambda: [session.run(add) for _ in range(40)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert session.run(total) == 160.0


def test_a_graph_that_grows_after_a_switch_keeps_its_values(hooked: Any) -> None:
    hooked(chaos=Chaos(1, "in-session", seed=2, devices=3))
    with tf.Session() as session:
        x, w, loss, step = model()
        session.run(tf.global_variables_initializer())
        train(session, x, loss, step, batches(3))
        scoped = tf.constant(2.0, name="v/part_0")
        session.run(scoped)
        late = tf.get_variable("late", initializer=np.float32(3), use_resource=True)
        named_like_a_scope = tf.multiply(scoped, 5.0, name="v")
        session.run(late.initializer)
        assert session.run([named_like_a_scope, late * 2.0]) == [10.0, 6.0]
        doubled = session.run(w * 2.0)
        assert np.array_equal(doubled, session.run(w) * 2.0)


def test_seeded_draws_and_what_they_need_stay_together_with_the_reason(hooked: Any) -> None:
    listener = hooked()
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    hidden = tf.nn.relu(x, name="hidden")
    noise = tf.random_uniform(tf.shape(hidden), seed=1, name="noise")
    out = tf.multiply(hidden, noise, name="out")
    with tf.Session() as session:
        session.run(out, {x: np.ones((2, 4))})
        description = listener.engines[0].describe()
    assert "seeded" in description.pinned["noise/RandomUniform"]
    assert "noise/RandomUniform" in description.pinned["Shape"]
    assert "out" not in description.pinned
    assert any("noise/RandomUniform" in why for why in description.restart_obstacles)


def test_unordered_use_of_a_variable_is_noted(hooked: Any) -> None:
    listener = hooked()
    v = tf.get_variable("v", initializer=np.float32(0), use_resource=True)
    write, read = v.assign_add(1.0, read_value=False), v.read_value()
    with tf.Session() as session:
        session.run(v.initializer)
        session.run([write, read])
        assert any("variable v is written and read without order" in n for n in listener.engines[0].describe().notes)


def test_sessions_leave_nothing_behind(hooked: Any) -> None:
    listener = hooked()
    one = tf.constant(1.0)
    kept = []
    for _ in range(50):
        with tf.Session() as session:
            session.run(one)
            kept.append(weakref.ref(listener.engines[0]))
    del session
    gc.collect()
    assert listener.engines == []
    assert sum(ref() is not None for ref in kept) <= 1


def test_a_callable_and_a_partial_run_follow_a_switch(hooked: Any) -> None:
    hooked(chaos=Chaos(2, "in-session", seed=5, devices=3))
    a, b = tf.placeholder(tf.float32, [], name="a"), tf.placeholder(tf.float32, [], name="b")
    v = tf.get_variable("v", initializer=np.float32(2), use_resource=True)
    first, second = tf.multiply(a, v, name="first"), tf.add(tf.multiply(b, v), 1.0, name="second")
    options = tf.Session.run.__globals__["config_pb2"].CallableOptions(feed=["a:0"], fetch=["first:0"])
    with tf.Session() as session:
        session.run(v.initializer)
        call = session._make_callable_from_options(options)
        for k in range(6):
            handle = session.partial_run_setup([first, second], [a, b])
            assert session.partial_run(handle, first, {a: k}) == 2.0 * k
            assert session.partial_run(handle, second, {b: k}) == 2.0 * k + 1
            assert call(np.float32(k))[0] == 2.0 * k


def test_a_partial_run_that_cannot_be_set_up_names_the_programs_op(
    hooked: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(raw: Any, feeds: Any, fetches: Any, targets: Any) -> Any:
        asked.append(capi.output_name(fetches[0]).partition(":")[0])
        raise tf.errors.InvalidArgumentError(None, None, f"Cannot assign a device for operation {asked[0]}: [[{asked[0]}]]")

    listener, asked = hooked(), []
    x = tf.placeholder(tf.float32, [], name="x")
    doubled = tf.multiply(x, 2.0, name="doubled")
    with tf.Session(config=two_devices) as session:
        session.run(doubled, {x: 1.0})
        (engine,) = listener.engines
        there = engine.devices()[1].name
        with engine.lock:
            copy = engine.switcher().prepare(engine.raw, LiveStrategy("moved", {"doubled": there}), [])
            engine.switcher().switch(engine.raw, copy, engine.gate, 1.0)
        monkeypatch.setattr(capi, "prun_setup", refuse)
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"operation doubled: \[\[doubled\]\]"):
            session.partial_run_setup([doubled], [x])
    assert asked[0] != "doubled"


def test_a_strategy_that_puts_a_variable_where_it_is_leaves_it_there(hooked: Any, two_devices: Any) -> None:
    """The read of a variable has no device of its own, and runs where the variable is."""
    listener = hooked()
    with tf.device("/cpu:1"):
        v = tf.get_variable("v", initializer=2.0, use_resource=True)
    doubled, add = v * 2.0, v.assign_add(1.0, read_value=False)
    with tf.Session(config=two_devices) as session:
        session.run(v.initializer)
        session.run(add)
        (engine,) = listener.engines
        there = engine.devices()[1].name
        with engine.lock:
            copy = engine.switcher().prepare(engine.raw, LiveStrategy("home", {"v": there, "mul/ReadVariableOp": there}), [])
            engine.switcher().switch(engine.raw, copy, engine.gate, 1.0)
        assert copy.plan.device_of == {} and engine.switcher().homes.at == {}
        assert session.run(doubled) == 6.0
        session.run(add)
        assert session.run(doubled) == 8.0


def test_only_options_with_something_to_watch_end_switches(hooked: Any, two_devices: Any) -> None:
    """A MonitoredSession whose hooks ask for options passes empty DebugOptions with every run."""
    listener = hooked(chaos=Chaos(2, "in-session", seed=1))
    x, _, loss, step = model()
    with tf.Session(config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        empty = tf.RunOptions(timeout_in_ms=60000)
        empty.debug_options.SetInParent()
        for batch in batches(6):
            session.run([loss, step], {x: batch}, options=empty)
        assert any(outcome.ok for outcome in listener.switches) and not listener.failed
        watching = tf.RunOptions()
        watching.debug_options.debug_tensor_watch_opts.add(
            node_name="loss", debug_ops=["DebugIdentity"], debug_urls=["file:///dev/null"]
        )
        switches = len(listener.switches)
        with contextlib.suppress(tf.errors.OpError):  # nothing can be written there
            session.run(loss, {x: batches(1)[0]}, options=watching)
        for batch in batches(6):
            session.run([loss, step], {x: batch})
        assert not any(outcome.ok and not outcome.rollback for outcome in listener.switches[switches:])


def test_a_strategy_is_not_blamed_for_a_device_that_is_not_there(hooked: Any, reply: Any, two_devices: Any) -> None:
    two_devices.graph_options.place_pruned_graph = True
    listener = hooked()
    x = tf.placeholder(tf.float32, [2])
    moved = tf.tanh(tf.exp(x))
    with tf.device("/job:localhost/replica:0/task:0/device:CPU:7"):
        nowhere = tf.square(moved)
    with tf.Session(config=two_devices) as session:
        expected = [session.run(moved, {x: [1.0, 2.0]}).tobytes() for _ in range(2)]
        (engine,) = listener.engines
        engine.request_switch(LiveStrategy("other", {moved.op.name: engine.devices()[1].name}), Way.IN_SESSION, reply)
        while engine.strategy_id == "" and not reply.came():
            threading.Event().wait(0.01)
        expected.append(session.run(moved, {x: [1.0, 2.0]}).tobytes())
        assert reply.wait().ok
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"CPU:7|device:CPU:7"):
            session.run(nowhere, {x: [1.0, 2.0]})
        assert listener.failed == [] and engine.strategy_id == "other"
        expected.append(session.run(moved, {x: [1.0, 2.0]}).tobytes())
        assert len(set(expected)) == 1 and engine.strategy_id == "other"


def test_a_step_that_needs_nothing_of_what_moved_is_not_built_anew(hooked: Any, reply: Any, two_devices: Any) -> None:
    listener = hooked()
    x = tf.placeholder(tf.float32, [3], name="x")
    y, z = tf.exp(tf.cos(x) * 2.0, name="y"), tf.sin(x, name="z")
    with tf.Session(config=two_devices) as session:
        ask = session.make_callable(z, [x])
        seen = [session.run(z, {x: [1.0, 2.0, 3.0]}).tobytes(), ask([1.0, 2.0, 3.0]).tobytes()]
        (engine,) = listener.engines
        engine.request_switch(LiveStrategy("s", {"y": engine.devices()[1].name}), Way.IN_SESSION, reply)
        while not reply.came():
            session.run(y, {x: [1.0, 2.0, 3.0]})
        assert reply.wait().ok
        assert [session.run(z, {x: [1.0, 2.0, 3.0]}).tobytes(), ask([1.0, 2.0, 3.0]).tobytes()] == seen
        routes = {capi.output_name(kind.fetches[0]): kind.route for kind in engine.kinds.all() if kind.route is not None}
        assert {asked: capi.output_name(route.fetches[0]) == asked for asked, route in routes.items()} == {
            "y:0": False,
            "z:0": True,
        }


@pytest.mark.parametrize("served", [False, True])
def test_runs_of_copies_ask_for_what_keeps_tensorflow_from_dying_and_the_program_sees_nothing_of_it(
    hooked: Any, reply: Any, two_devices: Any, served: bool
) -> None:
    listener = hooked()
    target = tf.train.Server.create_local_server(config=two_devices).target if served else ""
    x, _, loss, step = model()
    asked = tf.RunOptions(trace_level=tf.RunOptions.SOFTWARE_TRACE, output_partition_graphs=True)
    with tf.Session(target, config=two_devices) as session:
        session.run(tf.global_variables_initializer())
        train(session, x, loss, step, batches(2))
        (engine,) = listener.engines
        engine.request_switch(everything_on(engine, engine.devices()[1].name), Way.IN_SESSION, reply)
        while not reply.came():
            train(session, x, loss, step, batches(1))
        assert reply.wait().ok
        train(session, x, loss, step, batches(1))
        (route,) = [kind.route for kind in engine.kinds.all() if kind.route is not None and len(kind.targets) == 1]
        assert names.LOWEST in [capi.op_name(op) for op in route.targets]
        assert min([names.LOWEST, *(capi.op_name(op) for op in route.targets), ".a", "0", "A"]) == names.LOWEST
        seen = tf.RunMetadata()
        session.run([loss, step], {x: batches(1)[0]}, asked, seen)
    shown = [node.name for graph in seen.partition_graphs for node in graph.node]
    shown += [stats.node_name for device in seen.step_stats.dev_stats for stats in device.node_stats]
    assert "loss" in shown and not {names.LOWEST, "."} & set(shown)
