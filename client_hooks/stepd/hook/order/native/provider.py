"""Gives sessions the native executor where it is there, has it built where it was asked for by name, says once why it is not used.

`auto` takes what somebody has built (`STEPD_ORDER=native` once, or `python -m stepd.hook.order.native.build`) and builds nothing by
itself: a compiler beside the program would slow down the very steps on which a strategy is judged.

It must not know strategies; a session asks before it is made, since its executors' type cannot change later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from stepd.hook.log import logger, tell_operator
from stepd.hook.model import Order
from stepd.hook.order.native import library
from stepd.hook.order.native.build import COMPILE_SECONDS, TRIAL_SECONDS, for_child
from stepd.hook.order.native.stamp import EXECUTOR_TYPE

_said: set[str] = set()


def executor_type(setting: Order, chosen: str) -> tuple[str, str]:
    """(type of executor for a direct session, why not the native one). `chosen`: what the program's ConfigProto says."""
    why = _why_not(setting, chosen, lambda: library.load_if_built(os.environ))
    return ("", why) if why else (EXECUTOR_TYPE, "")


def at_workers(setting: Order, chosen: str, keep: Callable[[], str]) -> str:
    """Why the local workers do not run on the native executor, "" when they do. `keep`: has them do so, as far as it is built."""
    return _why_not(setting, chosen, keep)


def _why_not(setting: Order, chosen: str, take: Callable[[], str]) -> str:
    if setting not in (Order.AUTO, Order.NATIVE):
        return f"STEPD_ORDER={setting.value}"
    if chosen:
        return f"the program chose the executor {chosen}"
    why = take()
    if why == library.NOT_BUILT and setting is Order.NATIVE:
        why = _build() or take()
    if why and setting is Order.NATIVE and why not in _said:
        _said.add(why)
        tell_operator(f"STEPD_ORDER=native: control edges are used instead, the native executor is not there: {why}")
    return why


def _build() -> str:
    """Build and wait for it; why it did not end well, if so."""
    logger.info("building the native executor, once for this TensorFlow")
    command = [sys.executable, "-m", "stepd.hook.order.native.build"]
    environ: Mapping[str, str] = for_child(os.environ)
    try:
        most = COMPILE_SECONDS + TRIAL_SECONDS
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=most, env=environ, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return f"its build did not end well: {error.__class__.__name__}"
    return ""
