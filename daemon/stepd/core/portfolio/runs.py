"""Which algorithms give the portfolio candidates, and in which order: those that are most often best come first.

The first parameters of every algorithm make the first look; then come the rest of the sweeps of those that did best, of the
others, the slow ones where they take little of the budget, less memory to fill where memory is tight, and blindness to links. It
runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stepd.core.placement import registry
from stepd.core.placement.registry import PlanOptions

Run = tuple[str, PlanOptions]

LEADING = ("data-parallel", "heft", "fastt-dpos", "metis", "etf", "getf", "celeritas", "dsc")
SLOW_OPS, SLOW_OPS_A_SECOND = 1500, 150
"""Slow algorithms run on problems of so many ops, and of so many for each second of the budget; on larger ones the time is better
spent on the search."""
QUICK = {"m-sct": 200}
"""Slow algorithms that are among the first on so many ops for each second of the budget: there they take some hundredths of it."""
SLOW_SHARE = 0.05
"""Of the budget, for one run of a slow algorithm."""
CLOSE = 1.15
"""How much longer an algorithm's first answer may be than the shortest one, for its whole sweep to run before all search."""
FAR = 1.5
"""The same in a hurry, of the leading algorithms, for their sweeps to run before the other algorithms."""
TIGHTER = (0.85, 0.7)
"""Shares of the memory that algorithms may fill where memory is tight: their own accounting is simpler than the simulator's."""


def first_look(names: Sequence[str], plain: PlanOptions, n_ops: int) -> list[Run]:
    """Every algorithm of `names` that is fast on so many ops, with the first parameters of its sweep."""
    quick = [name for name in names if n_ops <= QUICK.get(name, 0) * plain.budget_seconds]
    return [(name, registry.swept(name, plain)[0]) for name in [*_fast(names), *quick]]


def early_sweeps(looked: Sequence[Run], plain: PlanOptions, shortest: Mapping[str, float]) -> list[Run]:
    """The other parameters of those algorithms of `looked`, the best first, whose first answers were not far from the best, and of
    those that found none that fits: in a hurry they do more good than looking at others."""
    names = sorted((name for name, _ in looked), key=lambda name: shortest.get(name, np.inf))
    most = FAR * min(shortest.values(), default=np.inf)
    return [(name, options) for name in names if not shortest.get(name, 0.0) > most for options in registry.swept(name, plain)[1:]]


def best_sweeps(names: Sequence[str], plain: PlanOptions, shortest: Mapping[str, float], known: float = np.inf) -> list[Run]:
    """The other parameters of the algorithms whose first answers were nearly the best, the best first.

    So that the portfolio is no worse than any of these, however little of the budget is left for search. shortest: seconds of the
    algorithms' first answers; known: of what there is besides.
    """
    most = CLOSE * min([known, *shortest.values()])
    good = sorted((name for name in names if shortest.get(name, np.inf) < most), key=lambda name: shortest[name])
    return [(name, options) for name in good for options in registry.swept(name, plain)[1:]]


def full_sweep(names: Sequence[str], plain: PlanOptions, n_ops: int, tight: bool, done: Sequence[Run] = ()) -> list[Run]:
    """Everything that `done` does not hold."""
    fast = _fast(names)
    runs = [(name, options) for name in fast for options in registry.swept(name, plain)]
    most = max(SLOW_OPS, int(SLOW_OPS_A_SECOND * plain.budget_seconds))
    short = replace(plain, budget_seconds=plain.budget_seconds * SLOW_SHARE)
    slow = [name for name in names if registry.find(name).effort == "slow" and n_ops <= most]
    begun = {name for name, _ in done}  # a slow one that was not too slow gets no other budget
    runs += [(name, options) for name in slow for options in registry.swept(name, plain if name in begun else short)]
    variants = [replace(plain, memory_factor=factor) for factor in TIGHTER] if tight else []
    variants.append(replace(plain, link_aware=False))
    runs += [(name, options) for variant in variants for name in fast for options in registry.swept(name, variant)]
    return [run for run in runs if run not in done]


def _fast(names: Sequence[str]) -> list[str]:
    """The fast ones, the leading ones first; the single devices are candidates already."""
    fast = [name for name in names if registry.find(name).effort == "fast" and name != "single"]
    return sorted(fast, key=lambda name: LEADING.index(name) if name in LEADING else len(LEADING))
