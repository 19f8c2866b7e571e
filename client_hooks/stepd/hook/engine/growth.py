"""How long steps have waited because the program extends its graph while a strategy is in force.

Whatever is added may contradict a copy, so that all of the graph is looked at again. Where that happens before every other step,
as in a training loop that makes ops, no placement is worth it. It must not know what is looked at.
"""

from __future__ import annotations

from stepd.hook import clocks

# What is spent on fitting a strategy to what is added: below these nobody would feel it.
_MOST_SECONDS, _MOST_SHARE = 2.0, 0.05


class Growth:
    """The time spent on what was added since `begin`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Something else is in force."""
        self._began, self._seconds, self._times = clocks.monotonic(), 0.0, 0

    def took(self, seconds: float) -> None:
        """What the program has added took `seconds`."""
        self._seconds += seconds
        self._times += 1

    def too_much(self) -> str:
        """Why the strategy is to be given up; "" where it is not."""
        if self._seconds < _MOST_SECONDS or self._seconds < _MOST_SHARE * (clocks.monotonic() - self._began):
            return ""
        return (
            f"the program has added ops to its graph {self._times} times since, and steps waited {self._seconds:.1f} s for the "
            "strategy to be fitted to them; make all ops before the training loop (tf.Graph.finalize() finds those that come later)"
        )
