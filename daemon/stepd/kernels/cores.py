"""How many cores kernels may run on: those that the process is bound to, and no more than its control groups pay for.

A container or a service with a quota of one core on a machine of 96 would otherwise start 95 threads that share that core. It knows
files of the kernel and nothing of stepd.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")


def usable(root: Path = ROOT) -> int:
    """Cores, at least one. `root`: where /proc and /sys are."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *(math.ceil(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Cores' worth of time of each control group above this process that has a limit."""
    groups = root / "sys/fs/cgroup"
    for controllers, path in _groups(root):
        mounts = [groups] if not controllers else [groups / controllers, *(groups / name for name in controllers.split(","))]
        for mount in mounts:
            inner = mount / path
            for folder in (inner, *(parent for parent in inner.parents if parent.is_relative_to(mount))):
                quota = _unified(folder) if not controllers else _v1(folder)
                if quota > 0:
                    yield quota


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """("", path) for version 2, ("cpu,cpuacct", path) for version 1; the path as seen from the mount."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or "cpu" in controllers.split(","):
                yield controllers, path.lstrip("/")


def _unified(folder: Path) -> float:
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        return 0.0 if quota == "max" else int(quota) / int(period)
    return 0.0


def _v1(folder: Path) -> float:
    with suppress(OSError, ValueError, ZeroDivisionError):
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        return quota / int((folder / "cpu.cfs_period_us").read_text())
    return 0.0
