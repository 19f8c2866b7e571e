"""The hook's own thread: what raises on it costs itself only."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator

import pytest

from stepd.hook.background import Background

WAIT_SECONDS = 20.0
LOOK_SECONDS = 0.01


class Work:
    """Turns and looks that are counted, and that raise when told to."""

    def __init__(self) -> None:
        self.broken = ""
        self.turned, self.looked = threading.Event(), threading.Event()

    def turn(self, now: float) -> None:
        self.turned.set()
        if self.broken == "turn":
            raise RuntimeError("a fault of a turn")

    def look(self, now: float) -> None:
        self.looked.set()
        if self.broken == "look":
            raise RuntimeError("a fault of a look")


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def background(work: Work) -> Iterator[Background]:
    made = Background("test", work.turn, work.look, LOOK_SECONDS)
    yield made
    deadline = time.monotonic() + WAIT_SECONDS
    made.stop(deadline)
    made.join(deadline)


def test_an_action_that_raises_does_not_keep_the_next_from_running(background: Background) -> None:
    def fail() -> None:
        raise RuntimeError("a fault of an action")

    done = threading.Event()
    background.post(fail)
    background.post(done.set)
    assert background.start()
    assert done.wait(WAIT_SECONDS)


@pytest.mark.parametrize("broken", ["turn", "look"])
def test_turns_and_looks_go_on_whatever_raises(background: Background, work: Work, broken: str) -> None:
    work.broken = broken
    background.start()
    for _ in range(3):
        work.turned.clear()
        work.looked.clear()
        assert work.turned.wait(WAIT_SECONDS) and work.looked.wait(WAIT_SECONDS)


def test_what_was_posted_before_the_stop_is_done(background: Background) -> None:
    done: list[int] = []
    for k in range(3):
        background.post(functools.partial(done.append, k))
    background.start()
    deadline = time.monotonic() + WAIT_SECONDS
    background.stop(deadline)
    background.join(deadline)
    assert done == [0, 1, 2]


def test_it_starts_once_and_never_again_after_a_stop(background: Background) -> None:
    assert background.start() and not background.start()
    background.stop(time.monotonic() + WAIT_SECONDS)
    assert not background.start()
