"""STEPD_REPORT: one JSON line per event of the hook, for tests and for people who look for a fault. Appends whole lines.

It says what the lines look like; it must not know who reports, nor the daemon.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from stepd.hook import files
from stepd.hook.log import logger
from stepd.hook.model import SwitchOutcome
from stepd.hook.trial import TrialVerdict


class Report:
    """Appends events to a file that several processes may share. An empty path writes nothing."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, event: str, session: str, fields: Mapping[str, object]) -> None:
        """One event; `fields` must be JSON values. A file that cannot be written stops the report, not the program."""
        if not self._path:
            return
        line = json.dumps({"event": event, "pid": os.getpid(), "session": session, **fields}) + "\n"
        try:
            file = files.open_descriptor(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                files.write(file, line.encode())  # one write of a line: processes do not mix
            finally:
                files.close(file)
        except OSError as error:
            logger.error("STEPD_REPORT=%s cannot be written: %s", self._path, error)
            self._path = ""

    def switch(self, session: str, outcome: SwitchOutcome) -> None:
        """A switch that happened, or that was refused."""
        fields = {
            "strategy_id": outcome.strategy_id,
            "way": outcome.way.value,
            "ok": outcome.ok,
            "error": outcome.error,
            "honoured": outcome.honoured,
            "not_honoured": len(outcome.not_honoured),
            "rollback": outcome.rollback,
            "order": outcome.order_in_force,
            "prepare_seconds": outcome.prepare_seconds,
            "wait_seconds": outcome.wait_seconds,
        }
        self.write("switch", session, fields)

    def verdict(self, session: str, verdict: TrialVerdict) -> None:
        """How a trial ended."""
        fields = {"strategy_id": verdict.strategy_id, "outcome": verdict.outcome.value, "reason": verdict.reason}
        self.write("verdict", session, fields)
