"""A session's activation state to JSON values and back, so that a restarted daemon goes on where it was."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from stepd.core.activation_values import Phase, Proposal, State

if TYPE_CHECKING:
    from stepd.daemon.jobs import Session


def to_json(session: Session) -> dict[str, Any]:
    """What of a session outlives the daemon."""
    state = asdict(session.state)
    state["phase"] = session.state.phase.value
    state["lost"] = sorted(session.state.lost)
    return {"state": state, "kind": session.kind, "total_steps": session.total_steps, "open": session.open}


def state_from_json(value: dict[str, Any]) -> State:
    """The state that `to_json` wrote; what another version added or dropped takes its default."""
    known = {field.name for field in fields(State)}
    state = {key: item for key, item in value["state"].items() if key in known}
    state["phase"] = Phase(state["phase"])
    state["lost"] = frozenset(state["lost"])
    if state.get("proposal"):
        state["proposal"] = Proposal(**state["proposal"])
    return State(**{**state, "attached": False})
