"""How answers look: tables for people, JSON for programs. NO_COLOR and pipes are honoured by rich."""

from __future__ import annotations

import enum
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


class Output(str, enum.Enum):
    """Output formats of every command."""

    table = "table"
    json = "json"


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    json.dump(value, sys.stdout, indent=2)
    sys.stdout.write("\n")


def console() -> Console:
    """Standard output; wide enough not to cut columns when it is no terminal."""
    return Console(soft_wrap=False, width=None if sys.stdout.isatty() else 200, highlight=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> Table:
    """A plain table."""
    result = Table(*columns, title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for row in rows:
        result.add_row(*row)
    return result


def duration(seconds: float) -> str:
    """ "83.1 ms"; "-" for 0, which stands for not known."""
    if seconds <= 0:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def size(count: int) -> str:
    """ "16.0 GiB"; "-" for 0."""
    if count <= 0:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return str(count)


def change(before: float, now: float) -> str:
    """ "-41 %" of step time; "" when one is not known."""
    return f"{(now / before - 1) * 100:+.1f} %" if before > 0 and now > 0 else ""


def ago(unix_nanos: int) -> str:
    """ "5 s ago"."""
    if not unix_nanos:
        return "-"
    seconds = max(0.0, time.time() - unix_nanos * 1e-9)
    for unit, scale in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= scale:
            return f"{seconds / scale:.0f} {unit} ago"
    return f"{seconds:.0f} s ago"
