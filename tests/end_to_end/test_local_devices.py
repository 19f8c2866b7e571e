"""`stepd-run --local-devices`: a program that opens plain sessions gets what it gets without, on worker processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, os, sys
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
me, seen = os.getpid(), []

def numbers():
    assert os.getpid() == me
    yield from range(5)

def times_ten(x):
    assert os.getpid() == me
    return np.float32(x * 10)

def error(session, fetch):
    try:
        session.run(fetch)
    except tf.errors.OpError as raised:
        return [type(raised).__name__, raised.message]

x = v1.get_variable("x", initializer=1.0, use_resource=True)
r = v1.get_variable("r", initializer=2.0, use_resource=False)
python = v1.py_func(times_ten, [x], tf.float32)
add = v1.assign_add(x, python)
generated = tf.data.Dataset.from_generator(numbers, tf.float32, ()).map(lambda n: n + 1).batch(2)
iterator = v1.data.make_initializable_iterator(generated)
batch = iterator.get_next()
in_map = tf.data.Dataset.range(3).map(lambda n: tf.numpy_function(lambda k: k * 2, [n], tf.int64))
mapped = v1.data.make_one_shot_iterator(in_map).get_next()
loop = tf.while_loop(lambda i: i < 3, lambda i: i + 1, [tf.constant(0)])
drawn = tf.random.uniform([2], seed=5)
queue = tf.queue.FIFOQueue(3, tf.float32, shapes=())
put, take = queue.enqueue(x), queue.dequeue()
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), -1)
found = table.lookup(tf.constant(["b", "c"]))
inner = tf.function(lambda y: tf.numpy_function(times_ten, [y], tf.float32))(x)
bad = tf.gather(tf.constant([1, 2]), v1.placeholder_with_default(7, []), name="bad")
saver = v1.train.Saver()
written, note = tf.io.write_file("note", "here"), tf.io.read_file("note")
lines = v1.data.make_initializable_iterator(tf.data.TextLineDataset("note"))  # a worker reads it
line = lines.get_next()
initialize = v1.global_variables_initializer()
with v1.Session() as session:
    seen.append(error(session, x)[0])
    session.run([initialize, iterator.initializer, v1.tables_initializer()])
    seen += session.run([add, loop, drawn]) + [session.run(drawn)]
    seen += [session.run(batch) for _ in range(3)] + [error(session, batch)[0]]
    seen += [session.run(mapped) for _ in range(3)]
    session.run(put)
    seen += session.run([take, found, inner]) + [error(session, bad)]
    path = saver.save(session, "model")  # a path that is relative to the program's own folder
    session.run(r.assign(50.0))
    saver.restore(session, path)
    seen += session.run([x, r]) + [session.make_callable([r])()]
    os.mkdir("below")
    os.chdir("below")
    seen.append(error(session, note)[0])
    session.run(written)
    session.run(lines.initializer)
    seen += [session.run(note).decode(), session.run(line).decode()]
    with v1.Session() as other:
        seen.append(error(other, x)[0])
        other.run(initialize)
        seen += [other.run(x), session.run(x)]
with v1.Session() as after:
    seen.append(error(after, x)[0])
    devices = [device.name for device in after.list_devices()]
print(json.dumps({"seen": [np.asarray(value).tolist() for value in seen], "devices": devices}))
"""


def run(folder: Path, *launcher: str) -> dict[str, list[object]]:
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("STEPD_")} | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [*launcher, sys.executable, "-c", PROGRAM],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, list[object]] = json.loads(done.stdout)
    return result


def test_a_plain_program_sees_the_same_on_two_workers(tmp_path: Path) -> None:
    cores = min(2, len(os.sched_getaffinity(0)))
    plain = run(tmp_path / "plain")
    launcher = [sys.executable, "-m", "stepd.hook.launcher", "--no-daemon", "--local-devices", str(cores)]
    local = run(tmp_path / "local", *launcher)
    assert len(local["devices"]) == cores + 1
    assert local["seen"] == plain["seen"]
    assert files(tmp_path / "local") == files(tmp_path / "plain")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
