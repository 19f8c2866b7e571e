"""The hook's time goes on when the program's stands still."""

from __future__ import annotations

import threading
import time

import pytest

from stepd.hook.background import Background
from stepd.hook.engine.gate import Gate


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every clock that a program may read stands still, and sleeping takes no time; returns who asked."""
    asked: list[str] = []
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"):
        monkeypatch.setattr(time, name, lambda *_, name=name: asked.append(name) or 0)
    return asked


def test_a_hold_gives_up_after_its_seconds(frozen: list[str]) -> None:
    gate = Gate[str]()
    gate.enter("a run that does not end")
    with gate.hold(lambda _: True, 0.01) as quiet:
        assert not quiet
    assert gate.held > 0.0
    assert frozen == []


def test_a_thread_looks_around_regularly(frozen: list[str]) -> None:
    looks: list[float] = []
    enough = threading.Event()

    def look(now: float) -> None:
        looks.append(now)
        if len(looks) == 3:
            enough.set()

    background = Background("test", lambda _: None, look, 0.001)
    assert background.start()
    assert enough.wait(20.0)
    background.stop(0.0)
    assert looks[0] < looks[1] < looks[2]
    assert frozen == []
