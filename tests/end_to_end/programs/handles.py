"""Tensors that stay in the session between runs."""

import tensorflow.compat.v1 as tf


def program_handles(record):
    a = tf.constant([1.0, 2.0])
    b = tf.placeholder(tf.float32, [2], name="b")
    c = tf.multiply(a, b, name="c")
    with tf.Session() as sess:
        kept = sess.run(tf.get_session_handle(c), {b: [2.0, 3.0]})
        record.value("kept", kept.eval())
        holder, value = tf.get_session_tensor(kept.handle, tf.float32)
        grown = tf.add(value, 1.0)
        again = tf.get_session_handle(grown)
        for k in range(12):
            record.value(f"run {k}", sess.run(grown, {holder: kept.handle}))
            kept = sess.run(again, {holder: kept.handle})
            record.value(f"kept {k}", kept.eval())
            record.value(f"fed by the handle {k}", sess.run(c, {b: kept}))
            record.value(f"other {k}", sess.run(c, {b: [k, 1.0]}))
        raw = kept.get_raw_handle()
        kept2 = sess.run(tf.get_session_handle(c), {b: [5.0, 5.0]})
        record.value("two", [kept2.eval(), raw is not None])
        kept2.delete()
        with record.error("deleted"):
            kept2.eval()
        remover, delete = tf.delete_session_tensor(raw)
        sess.run(delete, {remover: raw})
        with record.error("gone"):
            sess.run(grown, {holder: raw})
    names = [op.name for op in tf.get_default_graph().get_operations()]
    record.value("names", names)
