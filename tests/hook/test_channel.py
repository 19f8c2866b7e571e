"""The stream to the daemon over a real Unix socket: absent, late, killed, restarted."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepd.hook import channel as channel_module
from stepd.hook.address import Address, first_present, parse, places
from stepd.hook.channel import MAX_PROFILES, Channel
from stepd.hook.env import Settings
from stepd.v1 import runtime_pb2


class Talk:
    """A conversation that says its name and remembers what it hears."""

    def __init__(self) -> None:
        self.heard_messages: list[runtime_pb2.DaemonMessage] = []
        self.heard_one = threading.Event()

    def hello(self) -> runtime_pb2.HookMessage:
        return runtime_pb2.HookMessage(hello=runtime_pb2.Hello(job_id="j1"))

    def describe(self, welcome: runtime_pb2.Welcome) -> Iterable[runtime_pb2.HookMessage]:
        yield runtime_pb2.HookMessage(session_opened=runtime_pb2.SessionOpened(session_id="s1", target=welcome.daemon_version))

    def heartbeat(self, dropped_profiles: int) -> runtime_pb2.HookMessage:
        return runtime_pb2.HookMessage(heartbeat=runtime_pb2.Heartbeat(dropped_profiles=dropped_profiles))

    def heard(self, message: runtime_pb2.DaemonMessage) -> None:
        self.heard_messages.append(message)
        self.heard_one.set()


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def channel(daemon: Any, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    monkeypatch.setattr(channel_module, "LAST_BACK_OFF", 0.3)
    made = Channel(Settings(), (parse(str(daemon.socket)),), talk)
    yield made
    made.stop(5.0)


def closed(session_id: str) -> runtime_pb2.HookMessage:
    return runtime_pb2.HookMessage(session_closed=runtime_pb2.SessionClosed(session_id=session_id))


def profile(seconds: float) -> runtime_pb2.HookMessage:
    return runtime_pb2.HookMessage(profile=runtime_pb2.StepProfile(seconds=seconds, run_metadata=b"x" * 100))


def test_a_late_daemon_hears_everything_that_was_queued(channel: Channel, daemon: Any, talk: Talk) -> None:
    channel.start()
    channel.send(closed("s0"))
    daemon.start()
    assert daemon.next("hello").job_id == "j1"
    assert daemon.next("session_opened").target == "test"
    assert daemon.next("session_closed").session_id == "s0"
    daemon.say(runtime_pb2.DaemonMessage(resume=runtime_pb2.Resume()))
    assert talk.heard_one.wait(10.0)
    assert talk.heard_messages[0].WhichOneof("message") == "resume"


def test_the_programs_random_numbers_are_its_own(channel: Channel, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    state = random.getstate()
    looked = threading.Event()

    def look(where: Sequence[Address]) -> Address | None:
        return first_present(where) if looked.is_set() else looked.set()

    monkeypatch.setattr(channel_module, "first_present", look)
    channel.start()
    assert looked.wait(10.0)
    daemon.start()  # found after a pause of a random length
    assert daemon.next("hello").job_id == "j1"
    assert random.getstate() == state


def test_the_program_meets_none_of_its_threads(channel: Channel, daemon: Any) -> None:
    daemon.start()
    channel.start()
    assert daemon.next("session_opened").target == "test"
    assert channel._threads
    assert not {channel._thread, *channel._threads} & set(threading.enumerate())


@pytest.mark.parametrize(
    ("module", "function"), [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")]
)
def test_a_program_whose_threads_are_none_is_left_alone(
    channel: Channel, daemon: Any, monkeypatch: pytest.MonkeyPatch, module: str, function: str
) -> None:
    """gRPC on a thread of gevent's or eventlet's stops the program (seen with both)."""
    asked: list[str] = []
    again, patched = threading.Event(), threading.Event()

    def is_patched(what: str) -> bool:
        asked.append(what)
        if len(asked) > 1:
            again.set()
        return patched.is_set()

    patched.set()
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{function: is_patched}))
    daemon.start()
    channel.start()
    assert again.wait(10.0)  # it has looked, and did nothing
    assert daemon.heard.empty()
    patched.clear()
    assert daemon.next("hello").job_id == "j1"


def test_a_restarted_daemon_is_greeted_and_told_again(channel: Channel, daemon: Any) -> None:
    daemon.start()
    channel.start()
    daemon.next("session_opened")
    daemon.stop()
    daemon.start()
    assert daemon.next("hello").job_id == "j1"
    daemon.next("session_opened")
    channel.send(closed("s2"))
    assert daemon.next("session_closed").session_id == "s2"


def test_the_oldest_profiles_are_dropped_and_counted(channel: Channel, daemon: Any) -> None:
    for k in range(MAX_PROFILES + 5):
        channel.send_profile(profile(k))
    assert channel.dropped_profiles == 5
    daemon.start()
    channel.start()
    assert daemon.next("profile").seconds == 5.0


def test_held_for_a_fork_it_has_no_connection_and_comes_back(channel: Channel, daemon: Any) -> None:
    daemon.start()
    channel.start()
    daemon.next("hello")  # from here on the connection may be anywhere between half made and attached: all must do
    assert channel.hold(10.0)
    assert not channel.connected
    assert channel._idle.is_set()
    assert channel._threads
    assert not any(thread.is_alive() for thread in channel._threads)
    channel.release()
    daemon.next("hello")


def test_stopping_sends_what_is_queued(channel: Channel, daemon: Any) -> None:
    daemon.start()
    channel.start()
    daemon.next("session_opened")
    channel.send(closed("last"))
    channel.stop(5.0)
    assert daemon.next("session_closed").session_id == "last"


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("/run/d.sock", "unix:/run/d.sock"),
        ("unix:/run/d.sock", "unix:/run/d.sock"),
        ("unix:///run/d.sock", "unix:/run/d.sock"),
        ("localhost:50", "localhost:50"),
        ("tcp://10.0.0.1:50", "10.0.0.1:50"),
        ("d.sock", f"unix:{Path.cwd()}/d.sock"),
    ],
)
def test_addresses(text: str, target: str) -> None:
    assert parse(text).target == target


def test_a_socket_in_the_temporary_folder_must_be_ours() -> None:
    *trusted, temporary = places("", {"XDG_RUNTIME_DIR": "/run/user/1"})
    assert [place.path for place in trusted] == ["/run/user/1/stepd/stepd.sock", "/run/stepd/stepd.sock"]
    assert temporary.trusted_owner
    assert not any(place.trusted_owner for place in trusted)
