"""A pytest plugin: writes down how every test ended, and sets TensorFlow up as suites of graph mode expect it.

    SUITES_RECORD=FILE [SUITES_SECONDS=N] [SUITES_V1=1] [SUITES_DONE=FILE] [SUITES_ONLY=FILE] python -m pytest -p recording ...

A test that hangs ends the process with status 75 and its stacks in the file `stacks` beside the record (pytest keeps what is said
on stderr to itself); whoever started it goes on after that test, by the list of what is done. It must not know stepd.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_NOTES = Path(os.environ["SUITES_RECORD"])
_SECONDS = int(os.environ.get("SUITES_SECONDS", "120"))


def _note(**fields: Any) -> None:
    with _NOTES.open("a") as file:
        file.write(json.dumps(fields) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    import tensorflow.compat.v1 as tf
    from absl import flags

    if os.environ.get("SUITES_V1"):
        tf.disable_v2_behavior()
    flags.FLAGS(sys.argv[:1])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out what ran already, in a process that has died since."""
    done = set(Path(os.environ["SUITES_DONE"]).read_text().splitlines()) if "SUITES_DONE" in os.environ else set()
    only = set(Path(os.environ["SUITES_ONLY"]).read_text().splitlines()) if "SUITES_ONLY" in os.environ else set()
    items[:] = [item for item in items if item.nodeid not in done and (not only or item.nodeid in only)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _note(test=item.nodeid, outcome="began")
    done = threading.Event()
    threading.Thread(target=_watch, args=(item.nodeid, done), daemon=True).start()
    try:
        return (yield)
    finally:
        done.set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when != "call" and report.passed:
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    words = crash.message if crash else str(report.longrepr or "")
    _note(test=report.nodeid, outcome=report.outcome, when=report.when, words=words[:2000], text=str(report.longrepr or "")[-6000:])


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _note(test=report.nodeid, outcome="not collected", words=str(report.longrepr)[-600:])


def _watch(name: str, done: threading.Event) -> None:
    """Ends the process if `done` is not set in time. Time in which the process is stopped does not count."""
    for _ in range(_SECONDS):
        if done.wait(1):
            return
    with _NOTES.with_name("stacks").open("a") as file:
        print(f"{name}: hangs", file=file, flush=True)
        faulthandler.dump_traceback(file=file, all_threads=True)
    os._exit(75)
