"""Records of the programs in every mode, made once a test session."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def load_harness() -> ModuleType:
    """harness.py beside this file; tests are no package, so it is imported by its path."""
    spec = importlib.util.spec_from_file_location("fidelity_harness", Path(__file__).with_name("harness.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fidelity_harness"] = module
    spec.loader.exec_module(module)
    return module


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    harness = load_harness()
    full = harness.is_full()
    if "program" in metafunc.fixturenames:
        chosen = harness.names() if full else [n for n in harness.names() if n in harness.CORE]
        modes = harness.MODES if full else harness.CORE_MODES
        metafunc.parametrize(("mode", "program"), [(m, p) for m in modes for p in chosen])
    if "script" in metafunc.fixturenames:
        scripts = sorted(p.stem for p in harness.PROCESSES.glob("*.py")) if full else harness.CORE_SCRIPTS
        modes = harness.MODES if full else ("both",)
        metafunc.parametrize(("mode", "script"), [(m, s) for m in modes for s in scripts])


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    return load_harness()


@pytest.fixture(scope="session")
def outcome(
    harness: ModuleType, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str], Any]]:
    """The outcome of all chosen programs in a mode, two modes at a time; the first caller of a mode waits for it."""
    full = harness.is_full()
    programs = harness.names() if full else [n for n in harness.names() if n in harness.CORE]
    callers = [item for item in request.session.items if "outcome" in getattr(item, "fixturenames", ())]
    asked = {item.callspec.params["mode"] for item in callers if isinstance(item, pytest.Function)}
    folder = tmp_path_factory.mktemp("records")
    with ThreadPoolExecutor(2) as pool:
        modes = ["plain", *(mode for mode in (harness.MODES if full else harness.CORE_MODES) if mode in asked)]
        made = {mode: pool.submit(harness.run, mode, programs, folder / mode) for mode in modes}
        yield lambda mode: made[mode].result()
