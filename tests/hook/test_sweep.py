"""What a killed process left goes; what a living one marks stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from stepd.hook import sweep

HOLDS = """
import sys
from pathlib import Path
from stepd.hook import sweep
sweep.mark(Path(sys.argv[1]))
print(1, flush=True)
input()
"""


def old(folder: Path) -> Path:
    (folder / "content").mkdir(parents=True)
    os.utime(folder, (0, 0))
    return folder


def test_folders_of_dead_processes_go(tmp_path: Path) -> None:
    left, used, young = old(tmp_path / "left"), old(tmp_path / "used"), tmp_path / "young"
    young.mkdir()
    owner = subprocess.Popen([sys.executable, "-c", HOLDS, str(used)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None and owner.stdout.readline() == b"1\n"
    assert sweep.sweep(tmp_path.iterdir()) == [left]
    owner.kill()
    owner.communicate()
    assert sweep.sweep([used, young, tmp_path / "none"]) == [used]
    assert list(tmp_path.iterdir()) == [young]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = old(tmp_path / "target")
    (tmp_path / "link").symlink_to(target)
    assert sweep.sweep([tmp_path / "link"], older_than=-1.0) == []
    assert (target / "content").exists()
