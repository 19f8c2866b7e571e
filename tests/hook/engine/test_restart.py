"""Restarts: random streams go on, a new session unlike the old one is refused, a crash leaves a readable checkpoint."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepd.hook.engine import capi, gpu_memory, restarts, side
from stepd.hook.engine.settings import Chaos
from stepd.hook.model import LiveStrategy, Way

tf = pytest.importorskip("tensorflow.compat.v1")

from tensorflow.core.protobuf import config_pb2  # noqa: E402

CRASH = """
import os, pathlib, signal, sys, threading
import numpy as np, tensorflow.compat.v1 as tf
from stepd.hook import files
from stepd.hook.engine import install, loading, session_engine
from stepd.hook.engine.settings import EngineSettings
from stepd.hook.model import LiveStrategy, Way

where, folder = sys.argv[1], pathlib.Path(sys.argv[2])
engines = []
class Listener:
    def session_opened(self, engine): engines.append(engine)
    def graph_extended(self, engine): pass
    def wants_trace(self, engine, kind): return False
    def run_finished(self, engine, record): pass
    def session_closed(self, engine): pass

def crash(*args, **kwargs): os.kill(os.getpid(), signal.SIGKILL)

tf.disable_eager_execution()
install(Listener(), EngineSettings(state_dir=folder / "state"))
a = tf.get_variable("a", initializer=np.random.RandomState(1).randn(40, 3).astype("f"), use_resource=True)
table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0], name="table")
words, pairs = tf.placeholder(tf.string, [None]), tf.placeholder(tf.float32, [None, 2])
put, read = table.insert(words, pairs), table.export()
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for k in range(3):
        session.run(put, {words: ["a", str(k)], pairs: np.random.RandomState(k).randn(2, 2)})
    np.savez(folder / "expected", *session.run(read))
    if where == "saving":
        files.rename = crash
    elif where == "restoring":
        loading.Loading.load = crash
    else:
        session_engine.SessionEngine.replace_session = crash
    engines[0].request_switch(LiveStrategy("s", {}), Way.RESTART, print)
    threading.Event().wait(60)
"""


@pytest.mark.parametrize("where", ["saving", "restoring", "replacing"])
def test_a_crash_in_a_restart_leaves_a_whole_checkpoint_or_none(where: str, tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", CRASH, where, str(tmp_path)], timeout=120, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    whole = [path for path in (tmp_path / "state").iterdir() if path.suffix != ".tmp"]
    if where == "saving":
        assert whole == []
        return
    (folder,) = whole
    reader = tf.train.load_checkpoint(str(folder / "state"))
    assert set(reader.get_variable_to_shape_map()) == {"table/table/keys", "table/table/values"}
    keys, values = np.load(tmp_path / "expected.npz", allow_pickle=True).values()
    found = dict(zip(reader.get_tensor("table/table/keys"), reader.get_tensor("table/table/values").tolist(), strict=True))
    assert found == dict(zip(keys, values.tolist(), strict=True)) and len(found) == 4


def draws() -> list[bytes]:
    """Initializers run twice, with steps between them, and a run that is fed the draw instead."""
    w = tf.get_variable("w", [3, 2], initializer=tf.random_normal_initializer(seed=4), use_resource=True)
    noise = tf.random_uniform([2], seed=5, name="noise")
    add = w.assign_add(tf.ones([3, 2]), read_value=False)
    seen = []
    with tf.Session() as session:
        for _ in range(2):
            session.run(w.initializer)
            seen.append(session.run(w).tobytes())
            session.run(add)
            seen.append(session.run(noise * 2.0).tobytes())
            session.run(noise * 3.0, {noise: np.zeros(2)})
    return seen


def test_seeded_initializers_go_on_in_their_streams(hooked: Any, tmp_path: Path) -> None:
    with tf.Graph().as_default():
        expected = draws()
    listener = hooked(chaos=Chaos(1, "restart", devices=2), state_dir=tmp_path)
    assert draws() == expected
    assert sum(s.ok and s.way is Way.RESTART for s in listener.switches) >= 6, [s.error for s in listener.switches]


@pytest.mark.parametrize("resource", [False, True])
def test_a_variable_that_is_one_string_is_carried(resource: bool, hooked: Any, reply: Any) -> None:
    listener = hooked()
    word = tf.get_variable("word", [], tf.string, tf.constant_initializer("begun"), use_resource=resource)
    words = tf.get_variable("words", [2], tf.string, tf.constant_initializer(["a", b"\0\xff\0"]), use_resource=resource)
    given = tf.placeholder(tf.string, [])
    write = tf.assign(word, given)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(write, {given: np.array(b"written\0\0", dtype=object)})
        assert session.run(word) == b"written\0\0"
        (engine,) = listener.engines
        raw = engine.raw
        engine.request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
        while not reply.came():
            session.run(word)
            reply.pause()
        outcome = reply.wait()
        assert outcome.ok and engine.raw is not raw, outcome.error
        assert session.run(word) == b"written\0\0" and session.run(words).tolist() == [b"a", b"\0\xff\0"]


@pytest.mark.parametrize("empty", [0, 150])  # where one has no value, ops are made that read the others
def test_many_variables_are_looked_at_and_carried_some_at_a_time(
    empty: int, hooked: Any, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = hooked()
    values = [np.float32([k, -k]) for k in range(300)]
    variables = [tf.get_variable(f"v{k}", initializer=value, use_resource=k % 2 == 0) for k, value in enumerate(values)]
    reads = [v.read_value() for v in variables]
    full = [k for k in range(300) if not empty or k != empty]
    most, run = [], side.Side.run

    def counted(one: Any, fetches: Any = (), targets: Any = (), feeds: Any = None) -> Any:
        most.append(max(len(fetches), len(targets)))
        return run(one, fetches, targets, feeds)

    monkeypatch.setattr(side.Side, "run", counted)
    with tf.Session() as session:
        session.run([variables[k].initializer for k in full])
        (engine,) = listener.engines
        raw = engine.raw
        engine.request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
        while not reply.came():
            session.run(reads[0])
            reply.pause()
        assert reply.wait().ok and engine.raw is not raw, reply.wait().error
        found = session.run([reads[k] for k in full])
        assert all(np.array_equal(one, values[k]) for k, one in zip(full, found, strict=True))
        if empty:
            with pytest.raises(tf.errors.FailedPreconditionError, match=f"v{empty}"):
                session.run(reads[empty])
    assert 64 <= max(most) <= 128


def test_what_reads_a_session_that_a_restart_made_was_built_with_it(hooked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is built in a session keeps its runs waiting: in one that does not serve yet there are none."""
    listener = hooked()
    variables = [tf.get_variable(f"v{k}", initializer=np.float32([k]), use_resource=k % 2 == 0) for k in range(200)]
    total = tf.add_n([v.read_value() for v in variables])
    build, run = side.Side.build, side.Side.run
    built, run_in = set[tuple[str, ...]](), list[tuple[Any, tuple[str, ...]]]()

    def signature(one: side.Side, fetches: Any, targets: Any) -> tuple[str, ...]:
        return (str(one.session), *map(capi.output_name, fetches), *map(capi.op_name, targets))

    def building(one: side.Side, fetches: Any = (), targets: Any = (), feeds: Any = ()) -> None:
        built.add(signature(one, fetches, targets))
        build(one, fetches, targets, feeds)

    def running(one: side.Side, fetches: Any = (), targets: Any = (), feeds: Any = None) -> Any:
        run_in.append((one.session, signature(one, fetches, targets)))
        return run(one, fetches, targets, feeds)

    monkeypatch.setattr(side.Side, "build", building)
    monkeypatch.setattr(side.Side, "run", running)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        (engine,) = listener.engines
        for _ in range(2):
            before, raw, run_in[:] = set(built), engine.raw, []
            outcomes: list[Any] = []
            engine.request_switch(LiveStrategy("s", {}), Way.RESTART, outcomes.append)
            while not outcomes:
                session.run(total)
            assert outcomes[0].ok, outcomes[0].error
        assert session.run(total).tolist() == [sum(range(200))]
    reads = [names for one, names in run_in if one == raw]
    assert len(reads) >= 4 and before.issuperset(reads)


@pytest.mark.parametrize("beside", ["", "table"])  # with a table, ops are made that read the variables
@pytest.mark.parametrize("value", [np.float32([1, 2]), np.arange(9, dtype=np.int8)], ids=["floats", "bytes"])
def test_a_new_session_that_lost_a_value_is_let_go(
    beside: str, value: Any, hooked: Any, reply: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = hooked(state_dir=tmp_path)
    v = tf.get_variable("v", initializer=value, use_resource=True)
    add = v.assign_add([0] * (len(value) - 1) + [1])
    start = [v.initializer]
    if beside:
        keys = tf.lookup.KeyValueTensorInitializer(["a"], np.int64([1]))
        start.append(tf.lookup.StaticHashTable(keys, -1)._init_op)
    run = side.Side.run

    def run_and_spoil(one: Any, fetches: Any = (), targets: Any = (), feeds: Any = None) -> Any:
        found = run(one, fetches, targets, feeds)
        if feeds and targets:  # the values have been handed over
            run(one, targets=[one.mirror.operation(add.op.name)])
        return found

    monkeypatch.setattr(side.Side, "run", run_and_spoil)
    with tf.Session() as session:
        session.run(start)
        session.run(add)
        raw = listener.engines[0].raw
        listener.engines[0].request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
        while listener.engines[0].strategy_id == "" and not reply.came():
            pass
        assert session.run(v).tolist() == [*value[:-1], value[-1] + 1]
        assert listener.engines[0].raw is raw
        assert "variable v is not in the new session" in reply.wait().why_this_way
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["fed", "default", "variable"])
def test_a_data_set_that_cannot_be_made_again_keeps_the_session(given: str, hooked: Any, reply: Any) -> None:
    listener = hooked()
    v = tf.get_variable("v", initializer=np.int64(3), use_resource=True)
    size = {"fed": tf.placeholder(tf.int64, []), "default": tf.placeholder_with_default(np.int64(2), []), "variable": v}[given]
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(40).batch(size))
    batch, other = iterator.get_next(), tf.constant(1) + 1
    with tf.Session() as session:
        session.run(v.initializer)
        session.run(iterator.initializer, {} if given == "variable" else {size: 3})
        session.run(v.assign(5))
        seen = [session.run(batch).tolist()]
        listener.engines[0].request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
        while not reply.came():
            session.run(other)
            reply.pause()
        assert "was made with what" in reply.wait().why_this_way
        seen += [session.run(batch).tolist() for _ in range(2)]
    assert seen == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@pytest.mark.parametrize("inside", [False, True])
def test_a_data_set_that_writes_a_file_keeps_the_session(inside: bool, hooked: Any, reply: Any, tmp_path: Path) -> None:
    listener = hooked()
    cached = tf.data.Dataset.range(4).cache(str(tmp_path / "cache"))
    data = tf.data.Dataset.range(2).flat_map(lambda _: cached) if inside else cached.repeat(2)
    iterator = tf.data.make_initializable_iterator(data)
    element, other = iterator.get_next(), tf.constant(1) + 1
    with tf.Session() as session:
        session.run(iterator.initializer)
        seen = [int(session.run(element)) for _ in range(2)]
        listener.engines[0].request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
        while not reply.came():
            session.run(other)
            reply.pause()
        assert "writes files" in reply.wait().why_this_way
        seen += [int(session.run(element)) for _ in range(6)]
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3]


def test_a_cache_in_memory_goes_on_in_a_new_session(hooked: Any, tmp_path: Path) -> None:
    listener = hooked(chaos=Chaos(1, "restart", devices=2), state_dir=tmp_path)
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(4).cache().repeat(2))
    element = iterator.get_next()
    with tf.Session() as session:
        session.run(iterator.initializer)
        assert [int(session.run(element)) for _ in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert any(outcome.ok for outcome in listener.switches)


def test_a_handle_that_the_program_holds_serves_on(hooked: Any, tmp_path: Path) -> None:
    """It is fetched before the first run that uses it, and a restart is due in between."""
    listener = hooked(chaos=Chaos(1, "restart", devices=2), state_dir=tmp_path)
    data = tf.data.make_one_shot_iterator(tf.data.Dataset.range(9))
    handle = tf.placeholder(tf.string, [])
    taken = tf.data.Iterator.from_string_handle(handle, tf.int64, []).get_next()
    v = tf.get_variable("v", initializer=1.0)
    with tf.Session() as session:
        session.run(v.initializer)
        held = session.run(data.string_handle())
        session.run(v)
        session.run(v)
        assert [session.run(taken, {handle: held}) for _ in range(4)] == [0, 1, 2, 3]
    assert any("by which name" in outcome.error for outcome in listener.switches)


@pytest.mark.parametrize("needed", [1 << 20, 1 << 40])
def test_a_gpu_that_has_no_room_for_the_variables_twice_keeps_the_session(
    needed: int, hooked: Any, reply: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU stands for a GPU, whose allocator would say what it has in use."""
    device = "/job:localhost/replica:0/task:0/device:CPU:0"
    monkeypatch.setattr(restarts._Successor, "_gpu_bytes", lambda *_: {device: needed})
    monkeypatch.setattr(gpu_memory, "in_use", lambda metadata: {one.device: 1 << 20 for one in metadata.step_stats.dev_stats})
    listener = hooked()
    w = tf.get_variable("w", initializer=np.arange(5.0), use_resource=True)
    more = w.assign_add(np.ones(5))
    with tf.Session() as session:
        session.run(w.initializer)
        session.run(more)
        raw = listener.engines[0].raw
        listener.engines[0].request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
        while listener.engines[0].strategy_id == "":
            pass
        assert session.run(more).tolist() == [2.0, 3.0, 4.0, 5.0, 6.0]
        if needed == 1 << 20:
            assert listener.engines[0].raw is not raw
        else:
            assert listener.engines[0].raw is raw
            assert f"{device} has no room for the variables a second time: {needed >> 20} MiB" in reply.wait().why_this_way


def test_what_a_gpu_says_that_it_has_in_use() -> None:
    """As TensorFlow 2.21 said it on an H200."""
    trace = Path(__file__).parents[2] / "traces/testdata/launched_gpu.pb.gz"
    metadata = config_pb2.RunMetadata.FromString(gzip.decompress(trace.read_bytes()))
    (used,) = gpu_memory.in_use(metadata).items()
    assert used == ("/job:localhost/replica:0/task:0/device:GPU:0", pytest.approx(1068 << 20, rel=1e-3))
