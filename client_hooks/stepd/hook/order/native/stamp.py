"""What a build of the native executor belongs to: one source, one TensorFlow, one set of flags. It knows no compiler."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("priority_executor.cc")
HEADERS = tuple(sorted(SOURCE.parent.glob("*.h")))
LIBRARY = "priority_executor.so"
FAILED = "failed.txt"
EXECUTOR_TYPE = "STEPD_PRIORITY"


class NativeError(RuntimeError):
    """The native executor cannot be built or loaded; the text says why."""


@dataclass(frozen=True)
class Stamp:
    """Of the TensorFlow of this process. `text` is compiled into the library and names its folder."""

    text: str
    flags: tuple[str, ...]
    links: tuple[str, ...]
    include: Path

    @property
    def key(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:20]


def stamp() -> Stamp:
    """The stamp for the TensorFlow that is imported. Raises NativeError when it ships without what a build needs."""
    import tensorflow as tf

    try:
        flags, links = tuple(tf.sysconfig.get_compile_flags()), tuple(tf.sysconfig.get_link_flags())
        include = Path(tf.sysconfig.get_include())
        framework = _framework(Path(tf.sysconfig.get_lib()), links)
        source = b"".join(path.read_bytes() for path in (SOURCE, *HEADERS))
    except (OSError, AttributeError) as error:
        raise NativeError(f"this TensorFlow cannot be built against: {error}") from None
    lies = framework.stat()
    parts = (
        tf.version.VERSION,
        tf.version.GIT_VERSION,
        tf.version.COMPILER_VERSION,
        str(framework),
        str(lies.st_size),
        str(lies.st_mtime_ns),
        *flags,
        hashlib.sha256(source).hexdigest(),
    )
    return Stamp("\n".join(parts), flags, links, include)


def _framework(folder: Path, links: tuple[str, ...]) -> Path:
    """The library that is linked with. Raises NativeError when there is none."""
    for flag in links:
        path = folder / flag.removeprefix("-l:")
        if flag.startswith("-l:") and path.is_file():
            return path
    raise NativeError(f"no TensorFlow library to link with in {folder}")


def folder(of: Stamp, environ: Mapping[str, str]) -> Path:
    """Where the build lies: in the user's cache, else in a folder of the user's own in the temporary folder."""
    cache = environ.get("XDG_CACHE_HOME") or ""
    base = Path(cache) if cache.startswith("/") else Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111 - it never raises
    if not os.access(_existing(base), os.W_OK):
        base = Path(environ.get("TMPDIR") or "/tmp") / f"stepd-{os.getuid()}"
    return base / "stepd" / "native" / of.key


def _existing(path: Path) -> Path:
    return path if path.exists() or path == path.parent else _existing(path.parent)


def check_private(path: Path) -> None:
    """Raise NativeError unless `path` and the folder around it can be written by this user alone."""
    for part in (path.parent, path):
        status = part.stat()
        if status.st_uid not in (os.getuid(), 0) or status.st_mode & 0o022:
            raise NativeError(f"{part} can be written by others")
