"""Planner processes, seen from the daemon: start one with a request, collect its candidates, kill it when
its budget is over. One that yields and is left no time at all is started again with a small share of the cores: no plan would
ever come otherwise on a machine that is busy all the time.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import structlog

from stepd.core.errors import PlannerError
from stepd.daemon import codec
from stepd.daemon.planner_frames import BESIDE, GENTLY, LENGTH
from stepd.kernels import cache, cores

log = structlog.get_logger()

LAST = ("done", "error", "exported")
"""Kinds of frames that end an answer."""

SLOWEST = 4.0
"""A search counts its own work and may take this many times its budget on the wall (`planner_process.Budget`)."""

LATE = "no answer within"
STARVED = "left no time by other processes"

WATCH_SECONDS = 20.0
STARVED_SHARE = 0.1
"""A planner that yields and got less than this share of a core for WATCH_SECONDS is started again, gently."""

START_SECONDS = 240.0
"""Beyond the budget: starting Python, loading or compiling kernels and assembling the problem on a busy
machine.
"""


@dataclass(frozen=True)
class PlanResult:
    """What a planner process said before it ended: columns of the problem and its candidates, the best
    last.
    """

    problem: Mapping[str, Any]
    candidates: tuple[Mapping[str, Any], ...]
    cut_short: bool


@dataclass
class PlannerPool:
    """Starts planner processes, one at a time: they use the cores that training leaves, unless they need not yield."""

    cache_dir: Path
    threads: int
    yields: bool = True
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _compiling: asyncio.Task[None] | None = None

    def warm_up(self) -> None:
        """Have all kernels compiled in what others leave of the cores, unless they are, so that the first plan need not wait for
        that. A plan that comes sooner ends it: it compiles what it needs itself, and would only be held up."""
        if not cache.is_warm(self.cache_dir / "kernels"):
            self._compiling = asyncio.create_task(self._compile())

    async def close(self) -> None:
        """Stop compiling, and wait for the process to be gone."""
        if self._compiling is not None:
            self._compiling.cancel()
            await asyncio.gather(self._compiling, return_exceptions=True)
            self._compiling = None

    async def plan(self, request: Mapping[str, Any]) -> PlanResult:
        """Run a plan. Cancel the task to kill the process. Raises PlannerError with the reason when there is no candidate."""
        frames, reason = await self._frames(request)
        problem = next((frame for frame in frames if frame["kind"] == "problem"), {})
        candidates = tuple(frame for frame in frames if frame["kind"] == "candidate")
        if not candidates:
            raise PlannerError(reason or _message(frames) or "no candidate was found")
        return PlanResult(problem, candidates, cut_short=bool(reason))

    async def export(self, request: Mapping[str, Any]) -> bytes:
        """The problem that `plan` would solve, as PROBLEM_FORMAT's JSON. Raises PlannerError."""
        frames, reason = await self._frames({**request, "export": True})
        exported = next((frame["problem_json"] for frame in frames if frame["kind"] == "exported"), None)
        if exported is None:
            raise PlannerError(reason or _message(frames) or "the problem could not be assembled")
        return bytes(exported)

    async def _frames(self, request: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], str]:
        """All that a process says to a request, and why it was cut short, if it was."""
        blob = await asyncio.to_thread(codec.dumps, request)
        seconds = float(request["seconds"]) * SLOWEST + START_SECONDS
        await self.close()
        async with self._turn:
            if not self.yields:
                return await self._run(blob, seconds, BESIDE)
            frames, reason = await self._run(blob, seconds)
            if reason == STARVED:
                log.info("planning again with low priority", job=request.get("name", ""), reason=STARVED)
                frames, reason = await self._run(blob, seconds, GENTLY)
        if reason.startswith(LATE):
            reason += "; it only gets what other processes leave of the cores: see the setting planner_yields"
        return frames, reason

    async def _run(self, blob: bytes, seconds: float, share: str = "") -> tuple[list[Mapping[str, Any]], str]:
        """One process. share: BESIDE, GENTLY, or what others leave, which is watched."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "stepd.daemon.planner_process",
            *([share] if share else []),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment(),
        )
        collecting = asyncio.create_task(_collect(process, blob, seconds))
        starving = asyncio.create_task(asyncio.Event().wait() if share else _starving(process.pid))
        try:
            await asyncio.wait({collecting, starving}, return_when=asyncio.FIRST_COMPLETED)
            return collecting.result() if collecting.done() else ([], STARVED)
        finally:
            starving.cancel()
            collecting.cancel()
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def _compile(self) -> None:
        nothing = asyncio.subprocess.DEVNULL
        command = (sys.executable, "-m", "stepd.daemon.warm_up")
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command, stdin=nothing, stdout=nothing, stderr=nothing, env=self._environment()
        )
        try:
            code = await process.wait()
            log.info("planners compiled" if code == 0 else "planners not compiled", seconds=round(time.monotonic() - began, 1))
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _environment(self) -> dict[str, str]:
        """Limits on threads; no hook of ours in our own process."""
        threads = str(self.threads or max(1, cores.usable() - 1))
        limits = {"NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": "1"}
        return {**os.environ, **cache.prepare(self.cache_dir / "kernels"), **limits, "STEPD_ENABLE": "0"}


async def _collect(process: asyncio.subprocess.Process, blob: bytes, seconds: float) -> tuple[list[Mapping[str, Any]], str]:
    frames: list[Mapping[str, Any]] = []
    errors = asyncio.create_task(_tail(process.stderr))

    async def talk() -> None:
        assert process.stdin and process.stdout
        process.stdin.write(blob)
        await process.stdin.drain()
        process.stdin.close()
        while not frames or frames[-1]["kind"] not in LAST:
            frames.append(codec.loads(await _read_frame(process.stdout)))

    try:
        await asyncio.wait_for(talk(), seconds)
    except asyncio.TimeoutError:
        return frames, f"{LATE} {seconds:g} s"
    except (asyncio.IncompleteReadError, ConnectionError):
        return frames, f"the planner process ended early: {(await errors)[-500:] or 'no message'}"
    finally:
        errors.cancel()
    return frames, ""


async def _starving(pid: int) -> None:
    """Return when the process got less than STARVED_SHARE of a core for WATCH_SECONDS."""
    before = 0.0
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            used = sum(psutil.Process(pid).cpu_times()[:2])
        except psutil.Error:  # it has ended: what it said tells why
            await asyncio.Event().wait()
        if used - before < STARVED_SHARE * WATCH_SECONDS:
            return
        before = used


def _message(frames: Sequence[Mapping[str, Any]]) -> str:
    return next((frame["message"] for frame in frames if frame["kind"] == "error"), "")


async def _read_frame(stream: asyncio.StreamReader) -> bytes:
    (length,) = LENGTH.unpack(await stream.readexactly(LENGTH.size))
    return await stream.readexactly(length)


async def _tail(stream: asyncio.StreamReader | None) -> str:
    """The end of what a process says on stderr; reading it all keeps the pipe from filling."""
    kept = b""
    while stream and (chunk := await stream.read(65536)):
        kept = (kept + chunk)[-4096:]
    return kept.decode(errors="replace").strip()
