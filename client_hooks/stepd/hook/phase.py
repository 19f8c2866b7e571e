"""Where the trials of a session are, and what operators call it. It must not know what leads from one phase to the next.

idle -> switching -> verifying -> idle (kept)
                        |-> returning -> idle (rolled back)
                        |-> returning -> comparing -> idle, or forward again -> verifying (the machine itself was in doubt)
"""

from __future__ import annotations

import enum


class Phase(enum.Enum):
    """Where the director is; see the module."""

    IDLE = "idle"
    SWITCHING = "switching"
    VERIFYING = "verifying"
    RETURNING = "returning"
    COMPARING = "comparing"
    FORWARD = "forward"

    def word(self, kept: bool) -> str:
        """One word for the heartbeat; `kept`: a strategy was kept before."""
        if self in (Phase.SWITCHING, Phase.RETURNING, Phase.FORWARD):
            return "switching"
        if self in (Phase.VERIFYING, Phase.COMPARING):
            return "verifying"
        return "committed" if kept else "watching"
