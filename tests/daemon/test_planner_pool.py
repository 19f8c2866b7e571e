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
from stepd.kernels import cache

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


# Stands for Python itself: a planner beside whose answer a C library prints.
TALKATIVE = """#!{python}
import ctypes
from stepd.daemon import planner_process
from stepd.daemon.planner_frames import write_frame
def answer(request, out):
    for k in range(100):
        write_frame(out, {{"kind": "progress"}})
        ctypes.CDLL(None).puts(b"a remark " * 100)
    write_frame(out, {{"kind": "error", "message": "said"}})
planner_process.answer = answer
planner_process.main()
"""


def test_remarks_of_libraries_are_not_taken_for_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    talkative = tmp_path / "python"
    talkative.write_text(TALKATIVE.format(python=sys.executable))
    talkative.chmod(0o755)
    monkeypatch.setattr(planner.sys, "executable", str(talkative))
    with pytest.raises(PlannerError, match=r"^said$"):
        asyncio.run(PlannerPool(tmp_path, threads=1).plan({"seconds": 1.0}))


# Stands for Python itself: compiles for ever, and plans at once.
COMPILING = """#!{python}
import os, sys, time
from pathlib import Path
from stepd.daemon.planner_frames import write_frame
if "stepd.daemon.warm_up" in sys.argv:
    Path({log!r}).write_text(str(os.getpid()))
    time.sleep(3600)
write_frame(sys.stdout.buffer, {{"kind": "error", "message": "planned"}})
"""


@pytest.mark.parametrize("by_plan", [True, False])
def test_a_plan_and_the_end_stop_compiling(by_plan: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, log = tmp_path / "python", tmp_path / "log"
    slow.write_text(COMPILING.format(python=sys.executable, log=str(log)))
    slow.chmod(0o755)
    monkeypatch.setattr(planner.sys, "executable", str(slow))
    monkeypatch.setattr(cache, "is_warm", lambda base: False)  # whatever has been compiled on this machine

    async def warm_up_then_plan() -> None:
        pool = PlannerPool(tmp_path, threads=1, yields=False)
        pool.warm_up()
        while not (log.exists() and log.read_text()):
            await asyncio.sleep(0.01)
        if by_plan:
            with pytest.raises(PlannerError, match=r"^planned$"):
                await pool.plan({"seconds": 1.0})
        else:
            await pool.close()

    asyncio.run(warm_up_then_plan())
    assert not Path(f"/proc/{log.read_text()}").exists()


def test_what_was_compiled_before_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "is_warm", lambda base: True)
    started: list[object] = []
    monkeypatch.setattr(PlannerPool, "_compile", lambda pool: started.append(pool))
    PlannerPool(tmp_path, threads=1).warm_up()
    assert not started


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="Linux only")
@pytest.mark.parametrize(("niceness", "idle"), [(NICEST, True), (GENTLE, False)])
def test_only_the_nicest_is_idle(niceness: int, idle: bool) -> None:
    code = "import os, sys; from stepd.daemon.planner_process import give_way; give_way(int(sys.argv[1])); "
    code += "print(os.nice(0), os.sched_getscheduler(0) == os.SCHED_IDLE)"
    done = subprocess.run([sys.executable, "-c", code, str(niceness)], capture_output=True, text=True, check=True)
    nice = min(19, os.nice(0) + niceness)
    assert done.stdout.split() == [str(nice), str(idle)]
