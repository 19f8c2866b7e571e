"""The commands of stepctl, one module each, with `register(app)`."""

from __future__ import annotations

from stepd.cli.commands import (
    activate,
    compare,
    doctor,
    export_problem,
    health,
    history,
    pause,
    plan,
    rollback,
    show,
    simulate,
    status,
    version,
)

ALL = (
    status,
    show,
    history,
    activate,
    rollback,
    pause,
    export_problem,
    plan,
    simulate,
    compare,
    health,
    version,
    doctor,
)
