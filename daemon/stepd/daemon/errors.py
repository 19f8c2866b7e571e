"""What the daemon refuses, in the operator's words. rpc.py maps each class to a gRPC status, the command
line to an exit code.
"""

from __future__ import annotations

from stepd.core.errors import PlannerError, StepdError


class ConfigError(StepdError):
    """A setting is unknown or has a bad value."""


class AddressInUseError(StepdError):
    """Another daemon serves this socket."""


class NoSuchJobError(StepdError):
    """No job has this id or name, or several have."""


class BadRequestError(StepdError):
    """A request that cannot be carried out as it stands."""


class NotNowError(StepdError):
    """A request that could be carried out at another time."""


class StoreError(StepdError):
    """The state cannot be read or written."""


class GraphMissingError(PlannerError):
    """A session's graph is not in the state: the disk was full when it came, or the file was replaced."""
