"""STEPD_REPORT: one JSON line per event of the hook, for tests and for people who look for a fault. Appends whole lines."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from stepd.hook.log import logger


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
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                os.write(file, line.encode())  # one write of a line: processes do not mix
            finally:
                os.close(file)
        except OSError as error:
            logger.error("STEPD_REPORT=%s cannot be written: %s", self._path, error)
            self._path = ""
