"""How the portfolio's budget is shared between its parts. It runs nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace

HURRY_SECONDS, HURRY_SECONDS_AN_OP = 3.0, 4e-4
"""Budgets into which few rounds of search fit: there more of the algorithms' sweeps do more good, and the algorithms before all."""
SPARING_SECONDS_AN_OP = 1.5e-4
"""Budgets into which the algorithms' sweeps hardly fit."""
ROUND_SECONDS_AN_OP, MOST_OF_IT = 2.5e-5, 0.3
"""What the first round of the search is taken to last, and which share of the budget at most."""
LOOKING_SECONDS_AN_OP = 1e-5
"""What finding a graph's layers and repeated parts is taken to last."""

BOUND_EFFORT_A_SECOND = 1e7
"""Effort that raising the bound may take of each second of the budget: up to 5 % of it."""


@dataclass(frozen=True)
class Ends:
    """Shares of the budget from which on no more is begun of: what the structure of the graph suggests, annealed clusters, the
    first look at algorithms, whole sweeps before the search, and, before all these where hurried, what numbered names suggest.
    hurried: the first look comes before the structure, and after the first few algorithms come the whole sweeps of those that did
    best. sparing: the graph is so large that each simulation counts: few orders of a candidate are tried, and the bound comes
    last."""

    structure: float
    clusters: float
    first: float
    sweeps: float
    named: float = 0.0
    hurried: bool = False
    sparing: bool = False


CALM = Ends(structure=0.2, clusters=0.25, first=0.5, sweeps=0.6)
HURRIED = Ends(structure=0.6, clusters=0.65, first=0.5, sweeps=0.8, named=0.25, hurried=True)
SPARING = replace(HURRIED, sparing=True)


def ends_of(budget_seconds: float, n_ops: int) -> Ends:
    """Those for a budget and a graph."""
    if budget_seconds >= max(HURRY_SECONDS, HURRY_SECONDS_AN_OP * n_ops):
        return CALM
    return SPARING if budget_seconds < SPARING_SECONDS_AN_OP * n_ops else HURRIED


def bound_effort(budget_seconds: float) -> float:
    """What raising the bound may take."""
    return BOUND_EFFORT_A_SECOND * budget_seconds


def first_round(budget_seconds: float, n_ops: int) -> float:
    """The share that the first round of the search is taken to last."""
    return min(MOST_OF_IT, ROUND_SECONDS_AN_OP * n_ops / budget_seconds)


def looking(budget_seconds: float, n_ops: int) -> float:
    """The share that finding the structure is taken to last."""
    return LOOKING_SECONDS_AN_OP * n_ops / budget_seconds
