"""Takes the place of functions of a class or a module, and gives them back. It must not know what takes their place."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

_originals: dict[tuple[Any, str], Any] = {}


def put(owner: Any, functions: Mapping[str, Callable[..., Any]]) -> None:
    """Put `functions` in the place of those of these names; methods look like what they replace. Once done it changes nothing."""
    for name, function in functions.items():
        if (owner, name) not in _originals:
            before = _originals[owner, name] = getattr(owner, name)
            setattr(owner, name, functools.wraps(before)(function) if inspect.isclass(owner) else function)


def original(owner: Any, name: str) -> Any:
    """The owner's own function; a call that was under way when the patches went finds it in its place again."""
    return _originals.get((owner, name)) or getattr(owner, name)


def remove() -> None:
    """Give all of them back."""
    for (owner, name), before in _originals.items():
        setattr(owner, name, before)
    _originals.clear()
