"""What the names of ops say of a graph's parts: hierarchies of scopes, and families of scopes that differ by a number.

Labels here are of the ops whose names say something, -1 elsewhere. It knows names only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from stepd.core.problem import Index

_NUMBERED = re.compile(r"^(.*?)[_-]?(\d+)$")
_DIGITS = re.compile(r"\d+")
_UPDATE = re.compile(r"^update_(.+)$")
MOST_FAMILIES, FEWEST = 12, 0.2
"""Families of numbered scopes that are looked at, and which share of the ops these must hold."""


def scopes_of(names: Sequence[str]) -> tuple[list[tuple[str, ...]], Index]:
    """The forward paths of the scopes of ops, in the order of their first ops, and which of them each op is in, int32 [n]. Ops
    are many, their scopes are few."""
    number: dict[str, int] = {}
    scope = [number.setdefault(name.rpartition("/")[0], len(number)) for name in names]
    return [forward_path(f"{scope}/")[:-1] if scope else () for scope in number], np.array(scope, dtype=np.int32)


def forward_path(name: str) -> tuple[str, ...]:
    """The scopes of an op; of a gradient or an update, those of the forward op or variable that it belongs to."""
    parts = name.split("/")
    if "gradients" in name:
        last = max((k for k, part in enumerate(parts) if part.startswith("gradients")), default=-1)
        if 0 <= last < len(parts) - 1:
            parts = parts[last + 1 :]
    return tuple(_forward_part(part) for part in parts)


@lru_cache(maxsize=65536)
def _forward_part(part: str) -> str:
    update = _UPDATE.match(part)
    part = update.group(1) if update else part
    return part[:-5] if part.endswith("_grad") else part


@lru_cache(maxsize=65536)
def _numbered(part: str) -> tuple[str, tuple[int, ...]] | None:
    """Base and numbers of a part such as tower_0, cell-3 or stack1_cell_2 (one of stack#_cell)."""
    match = _NUMBERED.match(part)
    if match is None:
        return None
    base = match.group(1)
    return _DIGITS.sub("#", base), tuple(int(number[:9]) for number in (*_DIGITS.findall(base), match.group(2)))


def by_scope(paths: list[tuple[str, ...]], scope: Index) -> list[tuple[int, Index]]:
    """One labelling per depth of the hierarchy of name scopes; ops above that depth have none (-1)."""
    result = []
    for depth in range(1, 1 + min(max((len(path) for path in paths), default=0), 7)):
        numbers: dict[tuple[str, ...], int] = {}
        label = [numbers.setdefault(path[:depth], len(numbers)) if len(path) >= depth else -1 for path in paths]
        if len(numbers) > 1:
            result.append((depth, np.array(label, dtype=np.int32)[scope]))
    return result


def by_numbered_part(paths: list[tuple[str, ...]], scope: Index) -> list[tuple[str, Index]]:
    """Families of scopes that differ by a number: tower_0, tower_1; cell_0, cell_1; one labelling per family, those of most ops
    first."""
    families: dict[str, dict[int, tuple[int, ...]]] = defaultdict(dict)
    for at, path in enumerate(paths):
        for base, number in filter(None, map(_numbered, path)):
            families[base].setdefault(at, number)
    ops = np.bincount(scope, minlength=len(paths))
    result = []
    for base, number_of in families.items():
        place = {number: k for k, number in enumerate(sorted(set(number_of.values())))}
        if len(place) < 2:
            continue
        label = np.full(len(paths), -1, dtype=np.int32)
        label[list(number_of)] = [place[number] for number in number_of.values()]
        result.append((int(ops[label >= 0].sum()), base, label[scope]))
    result.sort(key=lambda item: (-item[0], item[1]))
    return [(base, label) for covered, base, label in result[:MOST_FAMILIES] if covered >= FEWEST * len(scope)]
