"""How a planner process and the daemon delimit messages on a pipe."""

from __future__ import annotations

import struct
from typing import Any, BinaryIO

from stepd.daemon import codec

LENGTH = struct.Struct("<Q")


def write_frame(out: BinaryIO, value: Any) -> None:
    """One length-prefixed blob."""
    blob = codec.dumps(value)
    out.write(LENGTH.pack(len(blob)) + blob)
    out.flush()
