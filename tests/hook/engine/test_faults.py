"""What is said of an error that ended a switch."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from tensorflow.python.framework import errors

from stepd.hook.engine.faults import reason
from stepd.hook.engine.refusals import NotQuietError, SwitchRefusedError
from stepd.hook.log import logger


class Kept(logging.Handler):
    """Remembers what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    handler = Kept()
    logger.addHandler(handler)
    yield handler.records
    logger.removeHandler(handler)


@pytest.mark.parametrize("refused", [SwitchRefusedError("the session is closed"), NotQuietError("a run does not end")])
def test_a_refusal_speaks_for_itself(refused: Exception, logged: list[logging.LogRecord]) -> None:
    assert reason(refused, "s1", "no switch") == str(refused)
    (record,) = logged
    assert record.levelno == logging.INFO and record.exc_info is None
    assert record.getMessage() == f"session s1: no switch: {refused}"


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (KeyError("w"), "KeyError: 'w'"),
        (errors.ResourceExhaustedError(None, None, "no memory for w"), "no memory for w"),
        (errors.UnknownError(None, None, ""), "UnknownError"),
    ],
)
def test_a_fault_is_named_and_logged_with_its_traceback(fault: Exception, text: str, logged: list[logging.LogRecord]) -> None:
    try:
        raise fault
    except Exception as caught:
        assert reason(caught, "s1", "no switch") == text
    (record,) = logged
    assert record.levelno == logging.ERROR and record.exc_info is not None and record.exc_info[1] is fault
