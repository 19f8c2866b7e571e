"""Do two records say the same? Values to the bit, errors to the word, but for the one frame of the hook's that tracebacks may have.

It knows what records look like, and nothing of how programs are run.
"""

from __future__ import annotations

import json
import re
from typing import Any


def differences(plain: list[Any], other: list[Any]) -> list[str]:
    """Notes that are not the same, as text; [] when the program could not tell."""
    found = []
    for ours, theirs in zip(plain, other, strict=False):
        if ours != theirs and not one_frame_more(ours, theirs):
            found.append(where(json.dumps(ours), json.dumps(theirs)))
    if len(plain) != len(other):
        found.append(f"plain has {len(plain)} notes, the other {len(other)}; its last is {json.dumps(other[-1:])[:3000]}")
    return found


def cut_short(record: list[Any]) -> str:
    """Why a plain run did not get to the end of the program, which shows nothing then; else ""."""
    found = next((note for note in record if note[0] in ("died", "the program ended with")), None)
    return json.dumps(found)[:1000] if found else ""


def where(plain: str, other: str) -> str:
    """The label and the surroundings of the first difference of two notes."""
    common = next((i for i, (a, b) in enumerate(zip(plain, other, strict=False)) if a != b), min(len(plain), len(other)))
    start = max(0, common - 80)
    return f"{plain[:40]} ...\n  plain: {plain[start : common + 500]}\n  other: {other[start : common + 500]}"


def one_frame_more(ours: Any, theirs: Any) -> bool:
    """Is `theirs` the stack trace `ours` with one frame of the hook's in it?"""
    if not (ours[0] == theirs[0] and isinstance(ours[1], dict) and "frames" in ours[1] and "frames" in theirs[1]):
        return False
    a, b = ours[1]["frames"], theirs[1]["frames"]
    return any(b[:k] + b[k + 1 :] == a for k in range(len(b)))


def own_lines(text: str) -> list[str]:
    """The lines of stderr that the program and Python wrote, without the runtime's log and without the hook's one frame."""
    runtime = re.compile(r"^(WARNING: All log|[IWEF]\d{4} |\d{4}-\d\d-\d\d |WARNING:tensorflow|Instructions for|non-resource)")
    lines = [line for line in text.splitlines() if not runtime.match(line)]
    kept, skip = [], 0
    for line in lines:
        if re.search(r'File ".*/stepd/hook/.*"', line):
            skip = 3  # the frame's line, its source and, since Python 3.11, the markers under it
        elif skip and (skip == 3 or set(line.strip()) <= {"^", "~"}) and line.startswith("    "):
            skip -= 1
            continue
        else:
            skip = 0
        if not skip:
            kept.append(without_addresses(line))
    return kept


def without_addresses(line: str) -> str:
    return re.sub(r"0x[0-9a-f]{6,}", "<address>", line)
