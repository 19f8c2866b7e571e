"""Threads of the hook's own: at work, and in no list of the program's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from stepd.hook import unseen

WAIT_SECONDS = 20.0


class Worker:
    """A hidden thread that waits until it is let go, and notes who it is."""

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()
        self.me: threading.Thread | None = None
        self.thread = unseen.Thread(self.work, "hidden")
        self.thread.start()
        assert self.begun.wait(WAIT_SECONDS)

    def work(self) -> None:
        self.me = threading.current_thread()
        self.begun.set()
        self.free.wait(WAIT_SECONDS)

    def end(self) -> None:
        self.free.set()
        self.thread.join(WAIT_SECONDS)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.end()


def test_it_is_neither_listed_nor_counted(worker: Worker) -> None:
    assert worker.thread.is_alive()
    assert worker.thread not in threading.enumerate()
    assert threading.active_count() == len(threading.enumerate())
    assert worker.thread in unseen.everybody()


def test_it_knows_itself(worker: Worker) -> None:
    assert worker.me is worker.thread


def test_it_leaves_nothing_behind(worker: Worker) -> None:
    worker.end()
    assert not worker.thread.is_alive()
    assert worker.thread not in unseen.everybody()


def test_the_programs_threads_are_listed_as_ever(worker: Worker) -> None:
    free = threading.Event()
    thread = threading.Thread(target=free.wait, args=(WAIT_SECONDS,))
    before = threading.active_count()
    thread.start()
    assert thread in threading.enumerate()
    assert threading.active_count() == before + 1
    free.set()
    thread.join(WAIT_SECONDS)
    assert thread not in threading.enumerate()
    assert threading.main_thread() in threading.enumerate()


def test_a_thread_may_be_hidden_while_it_runs() -> None:
    free = threading.Event()
    thread = threading.Thread(target=free.wait, args=(WAIT_SECONDS,))
    thread.start()
    unseen.hide(thread)
    assert thread not in threading.enumerate()
    free.set()
    thread.join(WAIT_SECONDS)


def test_the_programs_tracers_do_not_follow_it() -> None:
    seen: list[str] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        seen.append(frame.f_code.co_name)
        return trace

    def traced_work() -> None:
        assert sys.gettrace() is None

    threading.settrace(trace)
    try:
        thread = unseen.Thread(traced_work, "hidden")
        thread.start()
        thread.join(WAIT_SECONDS)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]  # as its documentation has it
    assert "traced_work" not in seen


def test_registers_of_somebody_elses_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Theirs(dict[int, threading.Thread]):
        """What another tool put there."""

    theirs = Theirs(threading._active)  # type: ignore[attr-defined]
    monkeypatch.setattr(threading, "_active", theirs)
    thread = unseen.Thread(lambda: None, "hidden")
    thread.start()
    thread.join(WAIT_SECONDS)
    assert threading._active is theirs  # type: ignore[attr-defined]
