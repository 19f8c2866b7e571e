"""Logging of the daemon: structlog on stderr, JSON off a terminal. Rotation is the platform's."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

import structlog


class _Logger(structlog.PrintLogger):
    """Prints lines; what cannot be written (a full disk behind stderr, a closed terminal) is lost, and the daemon goes on."""

    def msg(self, message: str) -> None:
        with suppress(OSError, ValueError):
            super().msg(message)

    debug = info = warning = error = exception = critical = msg


def configure(level: str, log_format: str) -> None:
    """Set up structlog once, at start."""
    as_json = log_format == "json" or (log_format == "auto" and not sys.stderr.isatty())
    renderer: structlog.typing.Processor = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *((structlog.processors.format_exc_info,) if as_json else ()),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=lambda *_: _Logger(sys.stderr),
    )
