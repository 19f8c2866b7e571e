"""When to do what keeps the runs of a session from beginning: just after a long step has begun, which hides something of it.

It must not know what that work is.
"""

from __future__ import annotations

from stepd.hook import clocks
from stepd.hook.engine.gate import Gate
from stepd.hook.engine.kinds import Kind, Kinds

# A step of this length hides something of the work that keeps the next one from beginning; how long to wait for one, in steps, and
# what a run takes to get past the place where it would be kept.
_LONG_STEP_SECONDS = 0.02
_STEPS_TO_AWAIT = 3.0
_BEGIN_SECONDS = 0.002


def await_long_step(kinds: Kinds, gate: Gate[Kind], most: float) -> None:
    """Wait until a long step has begun, for at most a few of them and `most` seconds; not at all where steps are short."""
    slowest = max((kind.least for kind in kinds.all() if kind.runs > 1), default=0.0)
    if slowest > _LONG_STEP_SECONDS:
        gate.await_begin(lambda kind: kind.runs > 1 and kind.least > slowest / 2, min(_STEPS_TO_AWAIT * slowest, most))
        clocks.sleep(_BEGIN_SECONDS)
