"""The commands of stepctl, one module each, with `register(app)`. Naming them here imports none of them: see stepd.cli.lazy."""

from __future__ import annotations

MODULES = {
    "status": "status",
    "show": "show",
    "history": "history",
    "activate": "activate",
    "rollback": "rollback",
    "pause": "pause",
    "resume": "pause",
    "export-problem": "export_problem",
    "plan": "plan",
    "simulate": "simulate",
    "compare": "compare",
    "health": "health",
    "version": "version",
    "doctor": "doctor",
}
"""Command -> its module here, in the order in which `stepctl --help` lists them."""

OFFLINE = frozenset({"plan", "simulate", "compare"})
"""Those that plan and simulate by themselves, with compiled kernels; the others only talk to a daemon."""
