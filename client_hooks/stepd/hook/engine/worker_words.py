"""What local workers say otherwise than a direct session: which devices there are, that a fetch has no value, what a fed tensor is
called. Pure."""

from __future__ import annotations

import re

from tensorflow.python.framework import errors

from stepd.hook.engine import names
from stepd.hook.ports import StepKind

# Of a branch that is not taken: "The tensor returned for <from>;<incarnation>;<to>;<tensor>;<frame>:<iteration> was not valid."
_DEAD = re.compile(r"Failed to fetch outputs for step .*The tensor returned for .*;([^;]+:\d+);\d+:\d+ was not valid", re.DOTALL)
# What brings a fed tensor to the step, by the tensor's op and number.
_FED = re.compile(r"\b_recv_(\S+)_(\d+)_S\d+\b")


_DEVICES = re.compile(r"(?<=available devices are \[ )/job:localhost/replica:0/task:0/device:CPU:0[^\]]*(?= \])")


def of_one_task(text: str, cpus: int) -> str:
    """`text` with the devices of a direct session, which has so many CPU devices, where it lists those of all workers."""
    own = ", ".join(f"/job:localhost/replica:0/task:0/device:CPU:{k}" for k in range(max(1, cpus)))
    return _DEVICES.sub(own, text)


def tell_plainly(error: BaseException, step: StepKind) -> None:
    """Make `error` of a run of `step` what a direct session raises. Feeds and fetches have numbers there, in the order of names."""
    text = getattr(error, "_message", None)
    if not isinstance(text, str):
        return
    feeds, fetches = sorted(step.feeds), sorted(step.fetches)
    dead = _DEAD.search(text) if isinstance(error, errors.InternalError) else None
    if dead is not None and dead[1] in fetches:
        error.__class__ = errors.InvalidArgumentError
        error._error_code = errors.INVALID_ARGUMENT  # type: ignore[attr-defined]
        names.set_text(error, f"Retval[{fetches.index(dead[1])}] does not have value")
    elif _FED.search(text):
        names.set_text(error, _FED.sub(lambda found: _argument(found, feeds), text))


def _argument(found: re.Match[str], feeds: list[str]) -> str:
    tensor = f"{found[1]}:{found[2]}"
    return f"_arg_{found[1]}_{found[2]}_{feeds.index(tensor)}" if tensor in feeds else found[0]
