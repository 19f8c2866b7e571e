"""Why a switch is not made: what every room of the engine may raise, and who asked for the switch is told. Knows nothing else."""


class SwitchRefusedError(Exception):
    """A switch that cannot be made now; the message says why. The session goes on as before."""


class NotQuietError(SwitchRefusedError):
    """Runs in flight use variables that would move, and did not end in time."""


class AtHomeError(SwitchRefusedError):
    """A step that is due had better run on the program's own placement, or all from now on."""
