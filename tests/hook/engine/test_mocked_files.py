"""A test of the program's has put mocks in the place of Python's functions on files: they neither hold a restart nor hear of it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from stepd.hook.engine.settings import Chaos

tf = pytest.importorskip("tensorflow.compat.v1")

FUNCTIONS = (
    "os.open", "os.close", "os.fsync", "os.listdir", "os.lstat", "os.stat", "os.mkdir", "os.makedirs", "os.rename", "os.replace",
    "os.unlink", "os.remove", "os.rmdir", "os.scandir", "os.readlink", "os.getcwd", "os.path.exists", "shutil.rmtree",
    "tempfile.gettempdir", "fcntl.flock", "builtins.open", "io.open",
)  # fmt: skip


def test_a_restart_goes_on_beside_mocks(hooked: Any, tmp_path: Path) -> None:
    listener = hooked(chaos=Chaos(1, "restart", devices=2), state_dir=tmp_path / "not" / "there")
    data = tmp_path / "words.txt"
    data.write_text("\n".join(map(str, range(12))))
    element = tf.data.make_one_shot_iterator(tf.data.TextLineDataset(str(data)).shuffle(3, seed=1).repeat(2)).get_next()
    v = tf.get_variable("v", initializer=0.0)
    add = tf.assign_add(v, 1.0)
    got = []
    with tf.Session() as session, ExitStack() as patched:
        session.run(v.initializer)
        got.append(session.run([element, add])[0])  # what TensorFlow's own Python looks for in files it has found by now
        before = len(listener.switches)
        mocks = {name: patched.enter_context(mock.patch(name)) for name in FUNCTIONS}
        for _ in range(6):
            got.append(session.run([element, add])[0])
        called = [name for name, each in mocks.items() if each.called]
        patched.close()
        assert session.run(v) == 7.0
    assert any(outcome.ok for outcome in listener.switches[before:])
    assert called == []
    assert len(set(got)) == 7  # an epoch's lines, none twice
    assert not list((tmp_path / "not" / "there").glob("*"))
