"""Logging of the daemon: structlog on stderr, JSON off a terminal. Rotation is the platform's."""

from __future__ import annotations

import logging
import sys

import structlog


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
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
