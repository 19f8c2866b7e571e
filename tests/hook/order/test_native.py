"""The native executor against TensorFlow's own, and everything that keeps it from being used where it should not be."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.model import LiveStrategy, Order  # noqa: E402
from stepd.hook.order.native import build, library, programs, provider, trial  # noqa: E402
from stepd.hook.order.native import stamp as stamps  # noqa: E402
from stepd.hook.order.native.stamp import EXECUTOR_TYPE, FAILED, LIBRARY, NativeError  # noqa: E402


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", programs.PROGRAMS, ids=lambda p: p.__name__)
def test_a_program_sees_what_it_sees_on_tensorflows_own_executor(native: Path, program: Callable[[Any], Any]) -> None:
    made = library.counts()[0]
    with tf.Graph().as_default():
        expected = trial.seen(program, trial.plain_session)
        assert trial.seen(program, lambda: trial.ordered_session(5, threads=3)) == expected
    assert library.counts()[0] > made


@pytest.mark.parametrize("devices", [1, 2])
def test_one_thread_runs_the_ops_by_priority_whatever_their_device(native: Path, devices: int) -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [40, 40])
        ops = []
        for k in range(12):
            with tf.device(f"/cpu:{k % devices}"):
                ops.append(tf.linalg.inv(x + float(k + 1) * 9.0 * tf.eye(40), name=f"op{k}"))
        order = list(range(12))
        random.Random(3).shuffle(order)
        table = library.new_table()
        library.add(table, {f"op{k}": place for place, k in enumerate(order)})
        for op in ops:
            op.op._set_attr("_stepd_order", tf.AttrValue(i=table))
        config = tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=1, use_per_session_threads=True)
        config.experimental.executor_type = EXECUTOR_TYPE
        metadata = tf.RunMetadata()
        with tf.Session(config=config) as session:
            value = np.random.RandomState(0).randn(40, 40).astype(np.float32)
            session.run(ops, {x: value})
            session.run(ops, {x: value}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
    began = {
        node.node_name: node.all_start_nanos
        for device in metadata.step_stats.dev_stats
        for node in device.node_stats
        if node.node_name.startswith("op")
    }
    ran = sorted(began, key=lambda name: began[name])
    wanted = [f"op{k}" for k in order]
    if devices == 1:
        assert ran == wanted
    else:  # the second device's executor starts after the first's; from its first op on all are sorted together
        tail = ran[ran.index(next(n for n in ran if int(n[2:]) % 2)) + 2 :]
        assert tail == [n for n in wanted if n in tail]


def test_receives_are_started_in_the_order_of_the_ops_that_wait_for_them(native: Path) -> None:
    order = list(range(12))
    random.Random(4).shuffle(order)
    command = [sys.executable, str(Path(__file__).with_name("receives.py")), str(native), json.dumps(order)]
    logging = {"TF_CPP_VMODULE": "sendrecv_ops=2", "TF_CPP_MIN_LOG_LEVEL": "0"}
    told = subprocess.run(command, env=os.environ | logging, capture_output=True, text=True, check=True).stderr
    assert [int(k) for k in re.findall(r"Recv .*edge_\d+_sent(\d+);", told)] == order


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_server_runs_its_ops_by_priority_so_many_at_once(native: Path, lanes: int) -> None:
    order = list(range(16))
    random.Random(lanes).shuffle(order)
    command = [sys.executable, str(Path(__file__).with_name("served.py")), str(native), str(lanes), json.dumps(order)]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.splitlines()[-1])
    ran = sorted(told["spans"], key=lambda k: told["spans"][k][0])
    spans = told["spans"].values()
    assert max(sum(begin <= now < end for begin, end in spans) for now, _ in spans) <= lanes
    if lanes == 1:
        assert ran == ["handed", *(str(k) for k in order)], "what is sent has no priority, and comes first all the same"
    assert told["waited"], "an op without a priority kept one that has one from running"
    assert told["plain"] == told["values"]
    assert told["delegated"] > 0, "graphs without priorities are TensorFlow's"


def test_what_cannot_be_redirected_is_told(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nowhere:
        def stepd_order_take_over(self, lanes: int) -> int:
            return 0

    monkeypatch.setattr(library._State, "library", Nowhere())
    with pytest.raises(NativeError, match="servers"):
        library.take_over(1)


def test_a_graph_without_priorities_is_left_to_tensorflow(native: Path) -> None:
    config = tf.ConfigProto()
    config.experimental.executor_type = EXECUTOR_TYPE
    made, delegated = library.counts()
    with tf.Graph().as_default(), tf.Session(config=config) as session:
        assert session.run(tf.constant(2.0) * tf.random.uniform([]) * 0.0) == 0.0
    assert library.counts() == (made, delegated + 1)


def test_a_library_for_another_tensorflow_is_refused(native: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library._State, "library", None)
    with pytest.raises(NativeError, match="another TensorFlow"):
        library.load(native, "2.0.0")
    assert not library.loaded()


def test_a_library_that_others_can_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library._State, "library", None)
    tmp_path.chmod(0o777)
    (tmp_path / LIBRARY).write_bytes(b"")
    with pytest.raises(NativeError, match="by others"):
        library.load(tmp_path / LIBRARY, "")


@pytest.fixture
def headers() -> None:
    """Skip where the TensorFlow that is tested has no headers of its executor, which is looked at first."""
    if not (stamps.stamp().include / "tensorflow/core/common_runtime/immutable_executor_state.h").is_file():
        pytest.skip("this TensorFlow ships without the headers of its executor")


@pytest.mark.usefixtures("headers")
def test_a_build_without_a_compiler_says_so_and_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library._State, "library", None)
    environ = {"XDG_CACHE_HOME": str(tmp_path), "CXX": "no-such-compiler"}
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(NativeError, match=r"no C\+\+ compiler"):
        build.build(environ)
    monkeypatch.setattr(build, "compile_library", lambda *_: pytest.fail("tried again"))
    with pytest.raises(NativeError, match=r"no C\+\+ compiler"):
        build.build(environ)
    assert "no C++ compiler" in library.load_if_built(environ)


@pytest.mark.usefixtures("headers")
def test_a_build_whose_trial_crashes_is_never_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}

    def died(command: list[str], **_: Any) -> Any:
        if "-m" in command:
            return subprocess.CompletedProcess(command, -11, "", "")
        Path(command[command.index("-o") + 1]).write_bytes(b"library")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(build, "compiler", lambda _: "c++")
    monkeypatch.setattr(build.subprocess, "run", died)
    with pytest.raises(NativeError, match="its trial failed with status -11"):
        build.build(environ)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["lock", FAILED] or not list(tmp_path.rglob(LIBRARY))


def test_what_is_built_belongs_to_one_tensorflow_and_one_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tensorflow

    one = stamps.stamp()
    assert tensorflow.version.VERSION in one.text
    with monkeypatch.context() as changed:
        changed.setattr(tensorflow.version, "VERSION", "2.99.0")
        assert stamps.stamp().key != one.key
    other = tmp_path / "source.cc"
    other.write_bytes(stamps.SOURCE.read_bytes() + b"// changed\n")
    monkeypatch.setattr(stamps, "SOURCE", other)
    assert stamps.stamp().key != one.key


@pytest.mark.parametrize(
    ("setting", "chosen", "why"),
    [
        (Order.CONTROL, "", "STEPD_ORDER=control"),
        (Order.NONE, "", "STEPD_ORDER=none"),
        (Order.AUTO, "SINGLE_THREADED_EXECUTOR", "the program chose the executor SINGLE_THREADED_EXECUTOR"),
        (Order.AUTO, "", "no compiler"),
    ],
)
def test_a_session_is_told_why_it_has_no_native_executor(
    setting: Order, chosen: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "load_if_built", lambda _: "no compiler")
    assert provider.executor_type(setting, chosen) == ("", why)
    assert capsys.readouterr().err == ""


def test_only_who_asks_for_it_by_name_has_it_built(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(library, "load_if_built", lambda _: "" if begun else library.NOT_BUILT)
    monkeypatch.setattr(provider.subprocess, "run", lambda command, **_: begun.append(command))
    assert provider.executor_type(Order.AUTO, "") == ("", library.NOT_BUILT) and not begun
    assert provider.executor_type(Order.NATIVE, "") == (EXECUTOR_TYPE, "") and len(begun) == 1


def test_who_asked_for_it_by_name_is_told_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(library, "load_if_built", lambda _: "a reason of this test")
    for _ in range(3):
        assert provider.executor_type(Order.NATIVE, "") == ("", "a reason of this test")
    told = capsys.readouterr().err
    assert told.count("a reason of this test") == 1 and "control edges are used instead" in told


def test_local_workers_have_it_built_only_for_who_asks_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(provider.subprocess, "run", lambda command, **_: begun.append(command))

    def keep() -> str:
        return "" if begun else library.NOT_BUILT

    assert provider.at_workers(Order.CONTROL, "", keep) == "STEPD_ORDER=control"
    assert provider.at_workers(Order.AUTO, "", keep) == library.NOT_BUILT and not begun
    assert provider.at_workers(Order.NATIVE, "", keep) == "" and len(begun) == 1


def test_an_order_says_native_where_the_session_has_it() -> None:
    from stepd.hook.order.planning import choose

    strategy = LiveStrategy("s", {}, {"a": 1}, order=Order.AUTO)
    assert choose(Order.AUTO, strategy, "") == (Order.NATIVE, "")
    for setting in (Order.AUTO, Order.NATIVE):
        assert choose(setting, strategy, "no compiler") == (Order.CONTROL, "the native executor is not used: no compiler")
    assert choose(Order.CONTROL, strategy, "") == (Order.CONTROL, "")
