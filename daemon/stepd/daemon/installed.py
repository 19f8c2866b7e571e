"""The version of stepd that is installed. It must not know what asks."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """As the package says; "unknown" where the code lies on Python's path without having been installed."""
    try:
        return importlib.metadata.version("stepd")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
