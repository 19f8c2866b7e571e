"""What `stepd warm-up` compiles: every algorithm, and of the portfolio also what a short budget would leave out."""

from __future__ import annotations

import pytest

from stepd.core.placement import registry
from stepd.core.portfolio import planner as portfolio
from stepd.core.strategy import Strategy
from stepd.daemon import warm_up


def test_the_search_is_compiled_without_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a second's budget a cold portfolio answers with one device, and the first live plan would compile the search."""
    compiled: list[str] = []

    def plan(name: str, problem: object, options: registry.PlanOptions) -> Strategy | None:
        compiled.append(name)
        return None

    monkeypatch.setattr(portfolio, "warm_up", lambda: compiled.append("search"))
    monkeypatch.setattr(registry, "plan", plan)
    assert [name for name, _, _ in warm_up.warm_up()] == list(registry.names())
    assert set(compiled) == {*registry.names(), "search"}
    assert compiled[compiled.index("portfolio") - 1] == "search"
