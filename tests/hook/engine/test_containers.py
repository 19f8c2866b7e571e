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
        return containers.existing(view, History({step: 1}))

    assert after(reads[0].op) == set()
    assert after(initialize[0]) == {"localhost"}
    assert after(initialize[1].op, reads[2].op) == {"other"}


def test_what_the_hook_looks_at_itself_makes_no_container(hooked: Any, reply: Any, two_devices: Any) -> None:
    """It asks a reference variable that nobody has run whether it has a value."""
    listener = hooked()
    v = tf.get_variable("v", [2], use_resource=True)
    tf.get_variable("r", [2], use_resource=False)
    read = tf.multiply(v.value(), 2.0, name="twice") + 1.0
    other = tf.constant(1.0) + 1.0
    with tf.Session(config=two_devices) as session:
        first = told(session, [None, read])
        session.run(other)
        (engine,) = listener.engines
        placement = dict.fromkeys(["v", "r", "twice"], engine.devices()[1].name)
        engine.request_switch(LiveStrategy("s", placement), Way.IN_SESSION, reply)
        while not reply.came():
            session.run(other)
        assert reply.wait().ok
        assert "Container" in first[0] and told(session, [None, read]) == first
