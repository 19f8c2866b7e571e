"""The whole observer with a fake engine and a fake daemon on a real socket."""

from __future__ import annotations

import json
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepd.hook import channel as channel_module
from stepd.hook import observer as observer_module
from stepd.hook.compat import Compatibility
from stepd.hook.env import Settings
from stepd.hook.observer import Observer
from stepd.v1 import runtime_pb2, strategy_pb2

WAIT_SECONDS = 20.0
OP, DEVICE = "loss", "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.fixture
def observer(daemon: Any, engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observer]:
    monkeypatch.setattr(channel_module, "LAST_BACK_OFF", 0.3)
    monkeypatch.setattr(observer_module, "LOOK_SECONDS", 0.05)
    settings = Settings(socket=str(daemon.socket), report=str(tmp_path / "report.jsonl"), job_name="test")
    made = Observer.create(settings, Compatibility(True, "fine", "2.21.0"), {}, ["python", "train.py"])
    engine.observer = made
    yield made
    made.stop()


class Program:
    """A training loop on a thread of its own, as fast as the observer lets it, with steps that only claim to take time."""

    def __init__(self, engine: Any, seconds: dict[str, float]) -> None:
        self._engine = engine
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop)

    def _loop(self) -> None:
        while not self._stop.wait(0.001):
            self._engine.run(self._seconds[self._engine.strategy_id])

    def __enter__(self) -> Program:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(WAIT_SECONDS)


def activate(strategy_id: str) -> runtime_pb2.DaemonMessage:
    strategy = strategy_pb2.Strategy(id=strategy_id, devices=[DEVICE], op=[OP], device=[0])
    return runtime_pb2.DaemonMessage(activate=runtime_pb2.Activate(session_id="s1", strategy=strategy, origin="planner"))


def test_a_session_is_described_profiled_and_timed(observer: Observer, daemon: Any, engine: Any) -> None:
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01}):
        hello = daemon.next("hello")
        assert (hello.job_name, hello.protocol, hello.compatibility.active) == ("test", 1, True)
        assert daemon.next("session_opened").device[0].name == DEVICE
        graph = daemon.next("graph")
        assert graph.graph_def
        assert (graph.fingerprint, graph.pinned[0].reason, graph.kind[0].id) == ("f00d", "is fed", "train")
        profile = daemon.next("profile")
        assert (profile.kind, list(profile.batch), profile.strategy_id) == ("train", [32], "")
        assert daemon.next("step_times").seconds[0] == pytest.approx(0.01)
    observer.session_closed(engine)
    assert daemon.next("session_closed").session_id == "s1"


def test_what_becomes_known_of_a_session_is_told(observer: Observer, daemon: Any, engine: Any) -> None:
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01}):
        assert daemon.next("session_opened").device[0].handling_seconds == 0.0
        daemon.next("graph")
        engine.handling = (5e-5, 1e-9)
        device = daemon.next("session_opened").device[0]
        assert (device.handling_seconds, device.handling_seconds_per_byte) == (5e-5, 1e-9)


def test_a_graph_that_the_daemon_knows_is_not_sent_again(observer: Observer, daemon: Any, engine: Any) -> None:
    daemon.known = ["f00d"]
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01}):
        assert daemon.next("graph").graph_def == b""
        daemon.say(runtime_pb2.DaemonMessage(graph_wanted=runtime_pb2.GraphWanted(session_id="s1")))
        assert daemon.next("graph").graph_def


def test_a_good_strategy_is_kept_and_a_bad_one_undone(observer: Observer, daemon: Any, engine: Any) -> None:
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01, "good": 0.005, "bad": 0.03}):
        daemon.next("step_times")
        daemon.say(activate("good"))
        switch = daemon.next("switch")
        assert (switch.ok, switch.strategy_id) == (True, "good")
        verdict = daemon.next("verdict")
        assert (verdict.strategy_id, verdict.outcome) == ("good", runtime_pb2.Verdict.KEPT)
        daemon.say(activate("bad"))
        verdict = daemon.next("verdict")
        assert (verdict.strategy_id, verdict.outcome) == ("bad", runtime_pb2.Verdict.ROLLED_BACK)
        assert engine.strategy_id == "good"


def test_the_guard_decides_while_the_daemon_is_dead_and_tells_it_later(observer: Observer, daemon: Any, engine: Any) -> None:
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01, "bad": 0.03}):
        daemon.next("step_times")
        engine.asked.clear()
        daemon.say(activate("bad"))
        assert engine.asked.wait(WAIT_SECONDS)  # the switch is requested; nothing is decided yet
        daemon.stop()
        while engine.requests != ["bad", ""]:
            engine.asked.clear()
            assert engine.asked.wait(WAIT_SECONDS)
        daemon.start()
        verdict = daemon.next("verdict")
        assert (verdict.strategy_id, verdict.outcome) == ("bad", runtime_pb2.Verdict.ROLLED_BACK)


def test_a_malformed_strategy_is_refused_by_name(observer: Observer, daemon: Any, engine: Any) -> None:
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01}):
        daemon.next("step_times")
        message = activate("odd")
        message.activate.strategy.device[:] = [7]
        daemon.say(message)
        verdict = daemon.next("verdict")
        assert verdict.outcome == runtime_pb2.Verdict.FAILED
        assert "odd" in verdict.reason
        assert "beyond its 1 devices" in verdict.reason


def test_a_paused_job_refuses_planners_and_resumes(observer: Observer, daemon: Any, engine: Any) -> None:
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01, "good": 0.005}):
        daemon.next("step_times")
        daemon.say(runtime_pb2.DaemonMessage(pause=runtime_pb2.Pause()))
        daemon.say(activate("good"))
        assert daemon.next("verdict").reason == "the job is paused"
        daemon.say(runtime_pb2.DaemonMessage(resume=runtime_pb2.Resume()))
        daemon.say(activate("good"))
        assert daemon.next("verdict").outcome == runtime_pb2.Verdict.KEPT


def test_without_a_daemon_nothing_is_traced_and_the_report_tells(observer: Observer, engine: Any, tmp_path: Path) -> None:
    observer.session_opened(engine)
    for _ in range(20):
        assert not observer.wants_trace(engine, engine.record(0.01).kind)
        engine.run(0.01)
    observer.strategy_failed(engine, "x", "OOM")
    observer.session_closed(engine)
    lines = [json.loads(line) for line in (tmp_path / "report.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["opened", "strategy_failed", "closed"]
    assert lines[-1]["runs"] == 20 and engine.noted > 10


def test_one_trace_at_a_time_and_none_beside_the_programs_profiler(
    observer: Observer, daemon: Any, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.start()
    observer.session_opened(engine)
    daemon.next("hello")
    kind = engine.record(0.01).kind

    def wanted() -> bool:
        """Runs until a trace is asked for, or it is clear that none will be."""
        for _ in range(2000):
            if observer.wants_trace(engine, kind):
                return True
            observer.run_finished(engine, engine.record(0.01))
            threading.Event().wait(0.001)
            if observer._watches[engine].clock.kinds[kind.id].traces_wanted and observer._watches[engine].sampler.listening:
                return observer.wants_trace(engine, kind)
        raise AssertionError("nobody listens")

    profiler = types.ModuleType("tensorflow.python.profiler.profiler_v2")
    profiler._profiler = object()  # type: ignore[attr-defined]
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, profiler.__name__, profiler)
        assert not wanted()
    assert wanted()
    assert not observer.wants_trace(engine, kind)  # the first is under way
    observer.run_finished(engine, engine.record(0.01, traced=True))
    assert wanted()


def test_an_engine_that_cannot_be_described_disturbs_nobody(observer: Observer, daemon: Any, engine: Any) -> None:
    def broken() -> None:
        raise RuntimeError("no graph")

    engine.describe = broken
    daemon.start()
    observer.session_opened(engine)
    with Program(engine, {"": 0.01}):
        assert daemon.next("step_times").session_id == "s1"
