"""What the names of ops say about structure: layers in order, and towers (replicas of one model)."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

import numpy as np

from stepd.core.prepared import prepare
from stepd.core.problem import Int, Problem

# tf.gradients prefixes; the scope of the forward op follows, its last part has "_grad" behind it.
_BACKWARD = re.compile(r"^(?:.*/)?gradients(?:_\d+)?/(.+?)(?:_grad)?(?=/|$)")
_TOWER = re.compile(r"(?:^|/)((?:tower|replica|clone|worker|gpu|device|shard|model)_?)(\d*)(?=[/_]|$)", re.IGNORECASE)
# Few layers cannot be balanced, and below many a scope is a piece of a layer.
ENOUGH_LAYERS = 8


def layer_of_ops(problem: Problem) -> Int:
    """Layer of every op, int64 [n], numbered by the mean place of their forward ops in topological order."""
    prepared = prepare(problem)
    n = problem.n_ops
    position = np.empty(n)
    position[prepared.tables.topological] = np.arange(n)
    names = [_forward_name(name) for name in problem.op_names]
    forward = np.array([own == name for own, name in zip(names, problem.op_names, strict=True)], dtype=bool)
    scopes = _scopes(names)
    label = np.unique(np.array(scopes, dtype=object), return_inverse=True)[1].reshape(-1) if n else np.zeros(0, dtype=np.int64)
    count = int(label.max(initial=-1)) + 1
    used = np.where(np.bincount(label[forward], minlength=count) > 0, True, False)
    weight = np.where(forward | ~used[label], 1.0, 0.0)
    place = np.bincount(label, weights=weight * position, minlength=count) / np.maximum(
        np.bincount(label, weights=weight, minlength=count), 1.0
    )
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(place, kind="stable")] = np.arange(count)
    return np.asarray(rank[label])


def _forward_name(name: str) -> str:
    """The name of the forward op that a gradient op belongs to; other names unchanged."""
    match = _BACKWARD.match(name)
    return match.group(1) if match else name


def _scopes(names: list[str]) -> list[str]:
    """Each op's scope, at the smallest depth at which there are enough of them."""
    parts = [name.split("/") for name in names]
    deepest = max((len(part) for part in parts), default=1)
    for depth in range(1, deepest + 1):
        scopes = ["/".join(part[:-1][:depth]) or part[0] for part in parts]
        if len(Counter(scopes)) >= ENOUGH_LAYERS:
            return scopes
    return names


def tower_of_ops(problem: Problem) -> Int:
    """Tower (replica) of every op, int64 [n], -1 for ops that belong to none; all -1 when there are not two towers or more.

    Towers are recognised by a numbered scope that TensorFlow users and tf.estimator give replicas ("tower_1/", "replica_1/",
    "clone_1/", "GPU_1/"; the first may have no number), the same scopes below gradients.
    """
    towers: Int = _towers(problem.op_names).copy()
    return towers


@lru_cache(maxsize=1)  # a sweep asks again; the names of 60k ops take 0.1 s
def _towers(names: tuple[str, ...]) -> Int:
    found = [_TOWER.search(name) for name in names]
    kinds = Counter(match.group(1).lower() for match in found if match and match.group(2))
    towers = np.full(len(names), -1, dtype=np.int64)
    if not kinds:
        return towers
    kind = kinds.most_common(1)[0][0]
    for op, match in enumerate(found):
        if match and match.group(1).lower() == kind:
            towers[op] = int(match.group(2) or 0)
    numbers = np.unique(towers[towers >= 0])
    if len(numbers) < 2:
        return np.full(len(names), -1, dtype=np.int64)
    towers[towers >= 0] = np.searchsorted(numbers, towers[towers >= 0])
    return towers
