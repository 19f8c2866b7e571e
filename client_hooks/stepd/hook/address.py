"""Where a daemon may listen: what the settings name, or the first default place that exists when one is looked for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Address:
    """`target` is gRPC's; `path` is the file of a Unix socket, "" for TCP. `trusted_owner`: the file must be ours or root's."""

    target: str
    path: str = ""
    trusted_owner: bool = False


def parse(text: str) -> Address:
    """An address as people write it: a path, `unix:PATH`, `unix:///PATH`, `host:port` or `tcp://host:port`."""
    if text.startswith("unix:"):
        text = text.removeprefix("unix:")
        if text.startswith("//"):
            text = "/" + text.lstrip("/")
    elif "/" not in text.removeprefix("tcp://") and ":" in text:
        return Address(text.removeprefix("tcp://"))
    path = str(Path(text).absolute())  # the program may change its folder later
    return Address(f"unix:{path}", path)


def places(given: str, environ: Mapping[str, str]) -> tuple[Address, ...]:
    """Where to look for a daemon, in this order; `given` alone when it is not empty."""
    if given:
        return (parse(given),)
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    paths = [f"{runtime}/stepd/stepd.sock"] if runtime else []
    paths += ["/run/stepd/stepd.sock", f"{tempfile.gettempdir()}/stepd-{os.getuid()}/stepd.sock"]
    # Anybody may make files in the temporary folder: whoever listens there could steer the job.
    return tuple(Address(f"unix:{path}", path, trusted_owner=path is paths[-1]) for path in paths)


def first_present(places: Sequence[Address]) -> Address | None:
    """The first place where something may listen: a TCP address, or a socket that exists."""
    for place in places:
        if not place.path or _usable(place):
            return place
    return None


def _usable(place: Address) -> bool:
    try:
        owner = os.stat(place.path).st_uid  # noqa: PTH116
    except OSError:
        return False
    return not place.trusted_owner or owner in (0, os.getuid())
