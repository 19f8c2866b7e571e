"""How planner processes share the cores with training, and what happens to one that is left none."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepd.core.errors import PlannerError
from stepd.daemon import planner
from stepd.daemon.planner import PlannerPool
from stepd.daemon.planner_process import GENTLE, NICEST

# Stands for Python itself: a planner that is left no time, unless it asks for its share.
STUCK = """#!{python}
import os, sys, time
from pathlib import Path
from stepd.daemon.planner_frames import GENTLY, write_frame
with Path({log!r}).open("a") as log:
    print(os.getpid(), file=log, flush=True)
if GENTLY not in sys.argv:
    time.sleep(3600)
write_frame(sys.stdout.buffer, {{"kind": "error", "message": "asked gently"}})
"""


def test_a_planner_that_is_left_no_time_is_started_again_gently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, log = tmp_path / "python", tmp_path / "log"
    stuck.write_text(STUCK.format(python=sys.executable, log=str(log)))
    stuck.chmod(0o755)
    monkeypatch.setattr(planner.sys, "executable", str(stuck))
    monkeypatch.setattr(planner, "WATCH_SECONDS", 1.0)
    monkeypatch.setattr(planner, "STARVED_SHARE", 10.0)  # no single thread gets that much: only who asks gently is left alone
    with pytest.raises(PlannerError, match=r"^asked gently$"):
        asyncio.run(PlannerPool(tmp_path, threads=1).plan({"seconds": 1.0}))
    pids = [int(pid) for pid in log.read_text().split()]
    assert 1 <= len(pids) <= 2  # the first may have been stopped before it said a word
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux only")
@pytest.mark.parametrize(("niceness", "idle"), [(NICEST, True), (GENTLE, False)])
def test_only_the_nicest_is_idle(niceness: int, idle: bool) -> None:
    code = "import os, sys; from stepd.daemon.planner_process import give_way; give_way(int(sys.argv[1])); "
    code += "print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE)"
    done = subprocess.run([sys.executable, "-c", code, str(niceness)], capture_output=True, text=True, check=True)
    nice = min(19, os.nice(0) + niceness)
    assert done.stdout.split() == [str(nice), str(idle)]
