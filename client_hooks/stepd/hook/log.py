"""The hook's own log. The program's logging configuration is never touched: the logger is not in logging's tree, has no parent
and writes nothing anywhere unless STEPD_LOG says where. `tell_operator` is the one exception: one line on stderr.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import Any


class _Log(logging.Logger):
    """A log that never raises, and that makes records, and asks for the time, only where somebody reads them."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - logging's name
        return bool(self.handlers) and super().isEnabledFor(level)

    def _log(self, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):  # a clock of a test's that has run out, a program's factory of records
            super()._log(*args, **kwargs)


# Made directly, not by getLogger: `logging.root.manager.loggerDict`, dictConfig and basicConfig never see it.
logger = _Log("stepd", level=logging.INFO)
logger.propagate = False


def configure(destination: str, level: str) -> None:
    """Write to a file (`%p` becomes the process id) or to "stderr" from now on. An unusable file is told once, not raised."""
    reset()
    logger.setLevel(level.upper())
    if not destination:
        return
    handler: logging.Handler
    if destination == "stderr":
        handler = logging.StreamHandler(sys.stderr)
    else:
        path = destination.replace("%p", str(os.getpid()))
        try:
            handler = logging.FileHandler(path, mode="a", encoding="utf-8")
        except OSError as error:
            tell_operator(f"STEPD_LOG={destination!r} cannot be written: {error}")
            return
    handler.setFormatter(logging.Formatter("%(asctime)s stepd[%(process)d] %(levelname)s %(message)s"))
    logger.addHandler(handler)


def reset() -> None:
    """Close what `configure` opened."""
    for handler in logger.handlers[:]:
        logger.removeHandler(handler)
        with contextlib.suppress(OSError, ValueError):
            handler.close()


def tell_operator(message: str) -> None:
    """The line that goes to the program's stderr because nobody would look elsewhere: why the hook is not active."""
    logger.warning(message)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"stepd: {message}\n")
