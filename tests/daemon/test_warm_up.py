"""What `stepd warm-up` compiles: every algorithm, and of the portfolio also what a short budget would leave out."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

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
    assert [name for name, _, _ in warm_up.warm_up()] == compiled
    assert sorted(compiled) == sorted({*registry.names(), "search"})
    assert compiled[-1] == "portfolio"


def test_what_processes_leave_undone_is_compiled_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed:
        def __init__(self, *arguments: object) -> None:
            pass

        def __enter__(self) -> Killed:
            return self

        def __exit__(self, *error: object) -> None:
            pass

        def submit(self, function: object, name: str) -> Future[warm_up.Compiled]:
            future: Future[warm_up.Compiled] = Future()
            if name == "heft":
                future.set_exception(BrokenProcessPool())
            else:
                future.set_result((name, 1.0, ""))
            return future

    here: list[str] = []
    monkeypatch.setattr(warm_up, "ProcessPoolExecutor", Killed)
    monkeypatch.setattr(warm_up, "compile_kernels", lambda name: (here.append(name), (name, 0.0, ""))[1])
    names = [name for name, _, _ in warm_up.warm_up(2)]
    assert sorted(names) == sorted({*registry.names(), "search"})
    assert {"heft", "portfolio"} <= set(here)
