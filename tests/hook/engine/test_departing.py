"""Sessions that go: replaced ones that take long to delete, for which nobody waits but those that come when there are too many;
and ones that a finalizer of the program still uses."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")

from stepd.hook.engine import capi, departing, requests  # noqa: E402
from stepd.hook.model import LiveStrategy, Way  # noqa: E402


def test_deletions_go_on_beside_whoever_asked_but_not_too_many() -> None:
    gone, held = departing.Departing(), threading.Event()
    began = [threading.Event() for _ in range(departing._MOST)]
    for event in began:
        gone.run(lambda event=event: (event.set(), held.wait(60)))  # type: ignore[misc]
    assert all(event.wait(60) for event in began)
    by: list[threading.Thread] = []
    gone.run(lambda: by.append(threading.current_thread()))
    assert by == [threading.current_thread()]
    held.set()
    gone.stop()
    assert not gone._threads
    gone.run(lambda: by.append(threading.current_thread()))
    assert by == [threading.current_thread()] * 2, "nothing begins beside a process that ends"


def test_a_restart_is_over_before_the_old_iterator_is(
    hooked: Any, replies: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, held, delete = threading.Event(), threading.Event(), capi.delete_session

    def slow(raw: Any) -> None:
        if raw is old:
            going.set()
            assert held.wait(60)
        delete(raw)

    monkeypatch.setattr(capi, "delete_session", slow)
    listener = hooked(state_dir=tmp_path)
    with tf.Graph().as_default():
        values = tf.data.make_one_shot_iterator(tf.data.Dataset.range(1 << 30).map(lambda i: i * i)).get_next()
        with tf.Session() as session:
            seen = [session.run(values) for _ in range(3)]
            (engine,) = listener.engines
            old, reply = engine.raw, replies()
            engine.request_switch(LiveStrategy("s", {}), Way.RESTART, reply)
            while not reply.came():  # it is told after the first run in the new session
                seen.append(session.run(values))
                reply.pause()
            assert reply.outcome.ok and reply.outcome.way is Way.RESTART, reply.outcome
            assert going.wait(60) and not held.is_set()
            seen.append(session.run(values))
        assert not listener.engines, "the program's own close waited for what was replaced"
        held.set()
    assert seen == [k * k for k in range(len(seen))]


def test_what_a_finalizer_in_a_cycle_runs_finds_variables_where_they_are(hooked: Any, two_devices: Any) -> None:
    """Python clears weak references to a session in a cycle before it calls finalizers, the session's own among them."""
    listener, seen = hooked(), list[Any]()

    class Agent:
        def __init__(self) -> None:
            with tf.Graph().as_default():
                self.v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
                self.double = tf.multiply(self.v, 2.0, name="double")
                self.session = tf.Session(config=two_devices)
            self.session.run(self.v.initializer)
            self.session.run(self.double)
            self.me = self

        def __del__(self) -> None:
            try:
                seen.append(self.session.run(self.double).tolist())
            except RuntimeError as e:
                seen.append(str(e))

    for _ in range(4):
        agent = Agent()
        (engine,) = listener.engines
        with engine.lock:
            away = LiveStrategy("away", {"v": engine.devices()[1].name})
            assert requests.switch_now(engine, engine.switcher(), away, engine.kinds.all()[-1:]).ok
        assert "v" in engine.switcher().homes.at
        del agent
        gc.collect()
        assert not listener.engines
    assert len(seen) == 4 and [2.0, 4.0] in seen
    assert all(each in ([2.0, 4.0], "Attempted to use a closed Session.") for each in seen)


def test_a_session_that_was_never_made_goes_as_plainly(hooked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hooked()
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda raised: told.append(str(raised.exc_value)))
    with pytest.raises(TypeError, match="config"):
        tf.Session(config=3)
    gc.collect()
    assert told == ["'Session' object has no attribute '_session'"]
