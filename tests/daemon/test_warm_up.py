"""What `stepd warm-up` compiles: every algorithm, and of the portfolio also what a short budget would leave out."""

from __future__ import annotations

import os
import subprocess
import sys
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


REACHED = """
import ast, sys
from pathlib import Path
from stepd.core import errors
from stepd.core.placement import registry
from stepd.core.portfolio import local_search
from stepd.daemon import warm_up

entries, called, reached = {}, set(), set()
for file in Path(errors.__file__).parent.rglob("*.py"):
    for function in [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]:
        decorators = {name.id for name in function.decorator_list if isinstance(name, ast.Name)}
        if decorators & {"kernel", "lean"}:
            entries[function.name] = str(file)
        elif not decorators & {"inner", "inlined"}:
            calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
            called |= {name.id for name in calls if isinstance(name, ast.Name)}
sys.setprofile(lambda frame, event, _: reached.add((frame.f_code.co_name, frame.f_code.co_filename)))
local_search.MOVES = 1  # without a compiler
for name in ("search", *registry.names()):
    if name != "portfolio":
        warm_up.compile_kernels(name)
sys.setprofile(None)
print(sorted(name for name, file in entries.items() if name in called and (name, file) not in reached))
"""


def test_every_kernel_is_compiled_that_a_plan_may_call() -> None:
    """A plan with towers, with ops in parts or of a graph too large for m-SCT compiled the rest within its budget."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", REACHED], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr[-2000:]


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
