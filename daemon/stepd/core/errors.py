"""The one tree of errors that core raises. Messages name the op, edge, group, device or setting, and say what to do."""

from __future__ import annotations


class StepdError(Exception):
    """Base of everything that stepd raises on purpose."""


class ProblemError(StepdError):
    """A planning problem is malformed or cannot be solved by any strategy. The message names the op, edge or group."""


class StrategyError(StepdError):
    """A strategy does not fit its problem. The message names the op or device."""


class PlannerError(StepdError):
    """A planner cannot run as asked (unknown name, missing extra, a budget of zero)."""
