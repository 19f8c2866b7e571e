"""Sessions whose first or later run is refused, that are made anew, extended by the program itself, or described by their config."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session


def started(record):
    """A session that counts in a variable, and what it runs."""
    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=True)
    step = v.assign_add(tf.exp(x) * tf.sin(x) + tf.cos(x))
    sess = tf.Session()
    sess.run(v.initializer)
    return sess, x, v, step


def count(record, label, sess, x, step, steps=4):
    for k in range(steps):
        record.value(f"{label} {k}", sess.run(step, {x: [k, 2.0]}))


def program_mended(record):
    """What a session refuses is mended by the program: a device, a colocation, an attribute."""
    sess, x, v, step = started(record)
    count(record, "before", sess, x, step)
    read = v.read_value()
    with tf.device("/gpu:7"):
        far = tf.square(read, name="far")
    with record.error("no such device"):
        sess.run(far)
    with record.error("nor for others"):
        sess.run(step, {x: [1.0, 2.0]})
    far.op._set_device("")
    record.value("mended", sess.run(far))
    count(record, "after", sess, x, step)
    lost = tf.identity(far, name="lost")
    lost.op._set_attr("_class", tf.AttrValue(list=tf.AttrValue.ListValue(s=[b"loc:@nowhere"])))
    with record.error("colocated with nothing"):
        sess.run(lost)
    lost.op._clear_attr("_class")
    more = lost * 2.0
    record.value("mended too", sess.run([lost, more]))
    count(record, "in the end", sess, x, step)
    with tf.device("/gpu:7"):
        other = tf.exp(read, name="other")
    with record.error("refused"):
        sess.run(other)
    other.op._set_device("")
    other.op._update_input(0, more)
    seen = tf.get_variable("seen", [2], use_resource=True)
    other.op._add_control_input(tf.assign(seen, [1.0, 2.0]).op)
    record.value("of other inputs", sess.run(other))
    record.value("written before", sess.run(seen.read_value()))
    with tf.control_dependencies([tf.assign(seen, [3.0, 4.0])]), tf.device("/gpu:7"):
        free = tf.exp(more, name="free")
    with record.error("refused too"):
        sess.run(free)
    free.op._set_device("")
    free.op._remove_all_control_inputs()
    record.value("waits for nothing", sess.run(free))
    record.value("not written", sess.run(seen.read_value()))
    sess.close()


def program_alive(record):
    """A first run is refused when something of the session lives already: an open partial run, what one has written, a callable."""
    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.get_variable("v", [2], use_resource=True)
    put, read = tf.identity(tf.assign(v, x), name="put"), tf.exp(v.read_value(), name="read")
    first, second = tf.Session(), tf.Session()
    record.value("put", first.partial_run(first.partial_run_setup([put], [x]), put, {x: [1.0, 2.0]}))
    call = second._make_callable_from_options(config_pb2.CallableOptions(feed=[x.name], fetch=[put.name]))
    with tf.device("/gpu:7"):
        far = tf.square(read, name="far")
    for k, sess in enumerate((first, second)):
        with record.error(f"{k} refused"):
            sess.run(far)
    for k in range(3):
        with record.error(f"called {k}"):
            record.value(f"call {k}", call(np.float32([k, 1.0])))
    far.op._set_device("")
    for k in range(4):
        record.value(f"{k}", [sess.run([read, far]) for sess in (first, second)])
        record.value(f"called {k} in the end", call(np.float32([k, 1.0])))
    call.__del__()
    with record.error("released"):
        call(np.float32([1.0, 1.0]))


def program_described(record):
    """Configs that are changed after the session was made, and names of sessions."""
    config = tf.ConfigProto()
    x = tf.placeholder(tf.float32, [2], name="x")
    with tf.device("/gpu:7"):
        far = tf.square(x, name="far")
    sess = tf.Session(config=config)
    config.allow_soft_placement = True
    for k in range(3):
        with record.error(f"{k} as it was made"):
            sess.run(far, {x: [k, 2.0]})
    named = tf.ConfigProto()
    named.experimental.session_metadata.name = "lifecycle"
    named.experimental.session_metadata.version = 3
    with tf.Session(config=named) as sess:
        with record.error("named and refused"):
            sess.run(far, {x: [1.0, 2.0]})
        far.op._set_device("")
        for k in range(4):
            metadata = config_pb2.RunMetadata()
            record.value(f"named {k}", sess.run(far, {x: [k, 2.0]}, run_metadata=metadata))
            record.value(f"name {k}", [metadata.session_metadata.name, metadata.session_metadata.version])
    near = tf.exp(x) * tf.sin(x) + tf.cos(x)
    with tf.Session() as sess:
        for k in range(4):
            metadata = config_pb2.RunMetadata()
            options = config_pb2.RunOptions(report_tensor_allocations_upon_oom=bool(k % 2))
            record.value(f"watched {k}", sess.run(near, {x: [k, 2.0]}, options, metadata))
            record.value(f"seen {k}", bool(metadata.step_stats.dev_stats))


def program_extended_itself(record):
    """Classes that extend the session in their own way, and objects that share a session's attributes."""

    class Extending(tf.Session):
        def _extend_graph(self):
            with self._graph._session_run_lock():
                pywrap_tf_session.ExtendSession(self._session)

    class Sharing(tf.Session):
        def __init__(self, other):
            self.__dict__ = other.__dict__

        def __del__(self):
            pass

    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=True)
    step = v.assign_add(tf.exp(x) * tf.sin(x) + tf.cos(x))
    own, known = Extending(), tf.Session()
    sharing = Sharing(known)
    for k, sess in enumerate((own, sharing, known)):
        if k < 2:
            sess.run(v.initializer)
        count(record, f"{k}", sess, x, step)
        more = tf.square(v.read_value()) + float(k)
        record.value(f"{k} more", sess.run(more))
        count(record, f"{k} after", sess, x, step)
    with tf.device("/gpu:7"):
        far = tf.square(x, name="far")
    for k, sess in enumerate((own, sharing)):
        with record.error(f"{k} refused"):
            sess.run(far, {x: [1.0, 2.0]})


def program_made_again(record):
    """A session whose constructor is called once more: refused, and in earnest."""
    sess, x, v, step = started(record)
    count(record, "before", sess, x, step)
    with record.error("no graph"):
        sess.__init__(graph="none")
    count(record, "as before", sess, x, tf.identity(step))
    sess.__init__(config=tf.ConfigProto(allow_soft_placement=True))
    with record.error("a new one"):
        sess.run(step, {x: [1.0, 2.0]})
    sess.run(v.initializer)
    count(record, "again", sess, x, step)
    sess.close()
