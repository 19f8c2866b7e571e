"""Values out of JSON, strictly: unknown keys, keys given twice and NaN for a number are errors, which name where they are.

It must not know what problems and strategies are made of.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from stepd.core.errors import StepdError

VERSION = 1  # of the formats of problems and strategies
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


def decode_json(text: str | bytes, what: str, error: type[StepdError]) -> Any:
    """Decoded JSON of a `what`. NaN and Infinity are numbers here, for readers to say where they are. Raises `error`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        value = dict(pairs)
        if len(value) < len(pairs):
            twice = next(key for k, (key, _) in enumerate(pairs) if key in dict(pairs[:k]))
            raise error(f"{what}: the key {twice!r} is given twice in one object: which is meant?")
        return value

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as fault:
        raise error(f"{what}: not JSON: {fault}") from fault


class Reader:
    """Takes values out of decoded JSON, with errors of one class."""

    def __init__(self, what: str, error: type[StepdError]) -> None:
        self.what = what
        self.error = error

    def fail(self, message: str) -> NoReturn:
        raise self.error(f"{self.what}: {message}")

    def keys(self, value: Any, where: str, needed: Sequence[str], optional: Sequence[str] = ()) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            self.fail(f"{where} must be an object, not {type(value).__name__}")
        missing = [key for key in needed if key not in value]
        unknown = [key for key in value if key not in needed and key not in optional]
        if missing:
            self.fail(f"{where} lacks the key {missing[0]!r}")
        if unknown:
            known = ", ".join((*needed, *optional))
            self.fail(f"{where} has the unknown key {unknown[0]!r}; version {VERSION} knows: {known}")
        return value

    def version(self, value: Any) -> None:
        if isinstance(value, bool) or value != VERSION:
            self.fail(f"version {value!r} is not supported; this program reads version {VERSION}")

    def list_(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            self.fail(f"{where} must be a list, not {type(value).__name__}")
        return value

    def text(self, value: Any, where: str) -> str:
        if not isinstance(value, str):
            self.fail(f"{where} must be a string, not {value!r}")
        return value

    def number(self, value: Any, where: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(f"{where} must be a number, not {value!r}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number) or number < 0:
            self.fail(f"{where} is {value!r}: it must be finite and not negative")
        return number

    def integer(self, value: Any, where: str, low: int = 0, high: int = INT64_MAX) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(f"{where} must be a whole number, not {value!r}")
        if not low <= value <= high:
            self.fail(f"{where} is {value}: it must be {'not negative' if value < low else f'at most {high}'}")
        return int(value)
