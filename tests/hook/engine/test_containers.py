"""What errors of uninitialized variables say of containers is what they say plainly; no run is made to know it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from stepd.hook.engine import capi, containers
from stepd.hook.engine.draws import History
from stepd.hook.engine.graphview import GraphView
from stepd.hook.model import LiveStrategy, Way
from stepd.hook.ports import StepKind

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.python.ops import cond_v2  # noqa: E402


def variables() -> tuple[Any, list[Any]]:
    """(the initializer of one, reads of others): one in the default container, one in another with it, one alone in a third."""
    full = tf.get_variable("full", initializer=1.0, use_resource=True)
    empty = tf.get_variable("empty", initializer=1.0, use_resource=True)
    with tf.container("box"):
        boxed = tf.get_variable("boxed", initializer=1.0, use_resource=True)
    with tf.container("other"):
        beside = tf.get_variable("beside", initializer=1.0, use_resource=True)
        queue = tf.queue.FIFOQueue(1, tf.float32, shapes=(), name="queue")
    return [full.initializer, queue.size()], [full * 2, empty * 2, boxed * 2, beside * 2]


def told(session: Any, reads: list[Any]) -> list[str]:
    messages = []
    for read in reads[1:]:
        with pytest.raises(tf.errors.FailedPreconditionError) as raised:
            session.run(read)
        # A process that has had a server tells what it last logged as well, and names the nodes in it.
        text = raised.value.message[raised.value.message.index("Could not find variable ") :]
        messages.append(re.sub(r"\n+Recent warning and error logs:.*?(?=\n\nOriginal stack|$)", "", text, flags=re.DOTALL))
    return messages


def test_a_container_is_on_the_device_of_what_lies_there(hooked: Any, reply: Any, two_devices: Any) -> None:
    """A variable on another device than all that have values: plainly there is no container there."""
    with tf.device("/cpu:1"):
        far = tf.get_variable("far", initializer=1.0, use_resource=True)
    listener, (initialize, reads) = hooked(), variables()
    with tf.Session(config=two_devices) as session:
        session.run(initialize)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Container localhost does not exist"):
            session.run(far * 2)
        (engine,) = listener.engines
        engine.request_switch(LiveStrategy("s", dict.fromkeys(["full", "empty"], engine.devices()[1].name)), Way.IN_SESSION, reply)
        while not reply.came():
            session.run(reads[0])
        assert reply.wait().ok, reply.wait()
        with pytest.raises(tf.errors.FailedPreconditionError, match="Container localhost does not exist"):
            session.run(far * 2)


@pytest.mark.parametrize("way", [Way.IN_SESSION, Way.RESTART])
def test_errors_say_what_they_say_plainly(way: Way, hooked: Any, reply: Any, two_devices: Any, tmp_path: Any) -> None:
    listener = hooked(state_dir=tmp_path)
    initialize, reads = variables()
    with tf.Session(config=two_devices) as session:
        session.run(initialize)
        for _ in range(2):
            session.run(reads[0])
        (engine,) = listener.engines
        placement = dict.fromkeys(["full", "empty", "boxed", "beside"], engine.devices()[1].name)
        engine.request_switch(LiveStrategy("s", placement), way, reply)
        while not reply.came():
            session.run(reads[0])
        assert reply.wait().ok and reply.wait().way is way, reply.wait()
        found = told(session, reads)
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        initialize, reads = variables()
        session.run(initialize)
        plain = told(session, reads)
    assert found == plain
    assert ["Container" in text for text in plain] == [False, True, False]


def test_only_what_ran_makes_a_container(hooked: Any) -> None:
    initialize, reads = variables()
    view = GraphView.parse(capi.graph_bytes(tf.get_default_graph()), lambda name: name)

    def after(*fetched: Any) -> set[str]:
        step = StepKind("k", (), (), tuple(op.name for op in fetched))
        found = containers.existing(view, History({step: 1}), lambda node: node.device)
        return {container for _, container in found}

    assert after(reads[0].op) == set()
    assert after(initialize[0]) == {"localhost"}
    assert after(initialize[1].op, reads[2].op) == {"other"}


def test_texts_say_that_a_container_is_missing_where_no_run_of_the_program_made_it() -> None:
    """Whatever the hook's own reads have made: it asks reference variables that nobody has run whether they have a value."""
    missing = "Container box does not exist. (Could not find resource: box/a/b)"
    there = "Resource box/a/b/N10tensorflow3VarE does not exist."
    for text in (missing, there):
        assert (
            containers.repair(f"Could not find variable a/b. {text} So it is", {("", "box")}, {})
            == f"Could not find variable a/b. {there} So it is"
        )
        assert containers.repair(text, {("", "localhost")}, {}) == missing
        assert containers.repair(text, {("one", "box")}, {"box/a/b": "one"}) == there
        assert containers.repair(text, {("one", "box")}, {"box/a/b": "other"}) == missing, "a container is on a device"


def test_what_makes_a_container_is_an_assignment_wherever_it_is_sure_to_run() -> None:
    """No other write makes a variable; one in a function, or by way of an identity, does; one in a branch may not have run."""
    with tf.Graph().as_default() as graph:
        ops, made = tf.raw_ops, {}
        handles = {}
        for name in ("added", "handed", "called", "branched"):
            handles[name] = ops.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name, name=name, container=name)

        @tf.function
        def assigned(handle: Any) -> Any:
            ops.AssignVariableOp(resource=handle, value=1.0)
            return 1.0

        made["added"] = ops.AssignAddVariableOp(resource=handles["added"], value=1.0)
        made["handed"] = ops.AssignVariableOp(resource=tf.identity(handles["handed"]), value=1.0)
        made["called"] = assigned(handles["called"]).op
        taken = tf.placeholder_with_default(True, [])
        made["branched"] = cond_v2.cond_v2(taken, lambda: assigned(handles["branched"]), lambda: 2.0, "branch").op
    view = GraphView.parse(capi.graph_bytes(graph), lambda name: name)

    def after(name: str) -> set[str]:
        found = containers.existing(view, History({StepKind("k", (), (), (made[name].name,)): 1}), lambda node: node.device)
        return {container for _, container in found}

    assert {name: after(name) for name in made} == {"added": set(), "handed": {"handed"}, "called": {"called"}, "branched": set()}
