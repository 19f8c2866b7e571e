"""Runs a module as a companion of stepd-run: `companion PARENT PIPE -m MODULE ARGS...` ends when the launcher is gone."""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

from stepd.hook.local_worker import die_with_parent


def main(arguments: list[str]) -> None:
    """Tie this process to its launcher, then become the module."""
    parent, pipe, dash_m, module = int(arguments[0]), int(arguments[1]), arguments[2], arguments[3]
    if dash_m != "-m":
        raise SystemExit(f"companion: -m expected, got {dash_m!r}")
    die_with_parent(parent)
    threading.Thread(target=_end_with_pipe, args=(pipe,), daemon=True).start()
    sys.argv = [module, *arguments[4:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_pipe(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)  # it may store what it knows


if __name__ == "__main__":
    main(sys.argv[1:])
