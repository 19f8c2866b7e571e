"""When an anytime algorithm stops: by its budget on the injected clock, or after its work units. Knows no clock of its own."""

from __future__ import annotations

from stepd.core.placement.registry import PlanOptions, stopped_clock


class Allowance:
    """Work units left within the options' budget.

    With a clock that runs and `max_work` 0 only the budget ends the work; with the stopped clock, where a budget would never end,
    `default_work` units do.
    """

    def __init__(self, options: PlanOptions, default_work: int) -> None:
        self._clock = options.clock
        self._end = options.clock() + options.budget_seconds
        self._unbounded = options.max_work == 0 and options.clock is not stopped_clock
        self._left = options.max_work or default_work

    def take(self, most: int) -> int:
        """Up to `most` units of work, 0 when the allowance is used up."""
        if self._clock() >= self._end:
            return 0
        if self._unbounded:
            return most
        taken = min(most, self._left)
        self._left -= taken
        return taken

    def seconds_left(self) -> float:
        """Seconds until the budget ends."""
        return max(0.0, self._end - self._clock())
