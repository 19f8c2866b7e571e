"""Compiled kernels are found again when the sources are the same, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepd.daemon.planner import PlannerPool
from stepd.kernels import cache


def test_any_change_of_any_source_changes_the_name(tmp_path: Path) -> None:
    (tmp_path / "placement").mkdir()
    (tmp_path / "kernel.py").write_text("a = 1\n")
    (tmp_path / "placement" / "called.py").write_text("b = 1\n")
    name = cache.folder_name([tmp_path])
    assert cache.NAME.fullmatch(name)
    os.utime(tmp_path / "kernel.py", (1, 1))
    assert cache.folder_name([tmp_path]) == name
    (tmp_path / "placement" / "called.py").write_text("b = 2\n")
    changed = cache.folder_name([tmp_path])
    (tmp_path / "placement" / "called.py").rename(tmp_path / "called.py")
    assert len({name, changed, cache.folder_name([tmp_path])}) == 3


def test_the_users_folder_comes_first_and_is_not_nested(tmp_path: Path) -> None:
    plain = cache.environment(tmp_path / "base", {})[cache.VARIABLE]
    assert Path(plain).parent == tmp_path / "base"
    chosen = cache.environment(tmp_path / "base", {cache.VARIABLE: str(tmp_path / "mine")})
    assert Path(chosen[cache.VARIABLE]).parent == tmp_path / "mine"
    assert cache.environment(tmp_path / "base", chosen) == chosen


def test_folders_without_use_are_removed(tmp_path: Path) -> None:
    old, new, foreign = tmp_path / f"core-{'0' * 16}", tmp_path / f"core-{'1' * 16}", tmp_path / "theirs"
    for folder in (old, new, foreign):
        folder.mkdir()
        (folder / "kernel.nbc").write_bytes(b"code")
    for folder in (old, foreign):
        os.utime(folder, (1000, 1000))
    cache.remove_unused(tmp_path, before=2000)
    assert sorted(tmp_path.iterdir()) == sorted([new, foreign])


def test_stepctl_keeps_kernels_in_the_folder_of_its_sources(tmp_path: Path) -> None:
    program = "from stepd.cli.lazy import _commands_of; _commands_of('plan'); import numba; print(numba.config.CACHE_DIR)"
    environ = {**os.environ, cache.VARIABLE: str(tmp_path)}
    shown = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True).stdout
    assert shown.strip() == cache.environment(tmp_path, {})[cache.VARIABLE]


def test_planner_processes_share_the_folder_of_warm_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE)
    chosen = PlannerPool(tmp_path, threads=1)._environment()[cache.VARIABLE]
    assert chosen == cache.environment(tmp_path / "kernels", {})[cache.VARIABLE]
    assert Path(chosen).is_dir()


def test_kernels_are_all_there_only_when_it_was_noted_for_these_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "core" / "kernel.py"
    source.parent.mkdir()
    source.write_text("a = 1\n")
    monkeypatch.setattr(cache, "_sources", lambda: [source.parent])
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    base = tmp_path / "kernels"
    assert not cache.is_warm(base)
    monkeypatch.setenv(cache.VARIABLE, cache.prepare(base)[cache.VARIABLE])
    cache.note_warm()
    assert cache.is_warm(base)
    os.utime(source, (1, 1))  # installed anew: numba would compile again
    assert not cache.is_warm(base)
