"""How the portfolio's budget is shared between its parts. It runs nothing."""

from __future__ import annotations

from dataclasses import dataclass

HURRY_SECONDS, HURRY_SECONDS_AN_OP = 3.0, 4e-4
"""Budgets into which few rounds of search fit: there more of the algorithms' sweeps do more good, and the algorithms before all."""


@dataclass(frozen=True)
class Ends:
    """Shares of the budget from which on no more is begun of: what the structure of the graph suggests, annealed clusters, the
    first look at algorithms, whole sweeps before the search. algorithms_first: the first look comes before the structure."""

    structure: float
    clusters: float
    first: float
    sweeps: float
    algorithms_first: bool = False


CALM = Ends(structure=0.2, clusters=0.25, first=0.5, sweeps=0.6)
HURRIED = Ends(structure=0.6, clusters=0.65, first=0.5, sweeps=0.8, algorithms_first=True)


def ends_of(budget_seconds: float, n_ops: int) -> Ends:
    """Those for a budget and a graph."""
    return HURRIED if budget_seconds < max(HURRY_SECONDS, HURRY_SECONDS_AN_OP * n_ops) else CALM
