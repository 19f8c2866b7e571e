"""How a planner process is told to start, and how it and the daemon delimit messages on a pipe."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from stepd.daemon import codec

BESIDE = "--beside"
"""Argument of a planner process that takes its share of the cores instead of yielding to training."""

GENTLY = "--gently"
"""Argument of a planner process that takes a small share of cores that training leaves nothing of."""

LENGTH = struct.Struct("<Q")


def write_frame(out: BinaryIO, value: Any) -> None:
    """One length-prefixed blob."""
    blob = codec.dumps(value)
    out.write(LENGTH.pack(len(blob)) + blob)
    out.flush()
