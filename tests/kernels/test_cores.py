"""Cores of a container or service: the least of what the process is bound to and of the quotas above it, in both versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stepd.kernels import cores

MANY = range(96)


def machine(folder: Path, groups: str, files: dict[str, str]) -> Path:
    """A root with /proc/self/cgroup and files below /sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text for name, text in files.items()}}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return folder


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/", {"cpu.max": "max 100000"}, 96),
        ("0::/", {"cpu.max": "1000 100000"}, 1),
        ("0::/system.slice/stepd.service", {"system.slice/cpu.max": "400000 100000", "cpu.max": "max 100000"}, 4),
        ("0::/a/b", {"a/b/cpu.max": "800000 100000", "a/cpu.max": "300000 100000"}, 3),
        ("0::/not/mounted/here", {"cpu.max": "200000 100000"}, 2),
        ("4:memory:/x\n2:cpu,cpuacct:/x", {"cpu/x/cpu.cfs_quota_us": "250000", "cpu/x/cpu.cfs_period_us": "100000"}, 3),
        ("2:cpu:/x", {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"}, 96),
        ("2:cpu:/docker/1", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ("0::/", {"cpu.max": "nonsense"}, 96),
    ],
)
def test_quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: dict[str, str], expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(MANY))
    assert cores.usable(machine(tmp_path, groups, files)) == expected


def test_a_narrow_binding_counts_and_nothing_need_be_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert cores.usable(machine(tmp_path, "0::/", {"cpu.max": "800000 100000"})) == 2
    assert cores.usable(tmp_path / "nothing") == 2
