"""The hook's own log is nobody else's affair."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepd.hook import log


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Who asks for the time, or makes a record, is noted, and gets an error."""
    noted: list[str] = []

    def clock(*_: object) -> float:
        noted.append("the time")
        raise StopIteration

    before = logging.getLogRecordFactory()
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", clock)
        patch.setattr(time, "time_ns", clock)
        yield noted
    logging.setLogRecordFactory(before)
    log.configure("", "info")


def test_without_a_reader_nothing_is_asked_for(asked: list[str]) -> None:
    log.configure("", "info")
    logging.setLogRecordFactory(lambda *_, **__: asked.append("a record"))  # type: ignore[arg-type, return-value]
    log.logger.info("to nobody")
    log.logger.exception("to nobody")
    assert asked == []


def test_with_a_reader_it_does_not_raise_whatever_the_clock_does(asked: list[str], tmp_path: Path) -> None:
    log.configure(str(tmp_path / "log"), "info")
    log.logger.info("to the operator")
    assert asked == ["the time"]
