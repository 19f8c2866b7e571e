"""A session's activation state to JSON values and back, so that a restarted daemon goes on where it was."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

from stepd.core.activation_values import Phase, Proposal, State

if TYPE_CHECKING:
    from stepd.daemon.jobs import Session


def to_json(session: Session, state: State) -> dict[str, Any]:
    """What of a session outlives the daemon, when it is in `state`."""
    kept = asdict(state)
    kept["phase"] = state.phase.value
    kept["lost"] = sorted(state.lost)
    return {"state": kept, "kind": session.kind, "total_steps": session.total_steps, "open": session.open}


def state_from_json(value: dict[str, Any], now: float) -> State:
    """The state that `to_json` wrote; what another version added or dropped takes its default. `now`: Unix seconds."""
    known = {field.name for field in fields(State)}
    state = {key: item for key, item in value["state"].items() if key in known}
    state["phase"] = Phase(state["phase"])
    state["lost"] = frozenset(state["lost"])
    if state.get("proposal"):
        state["proposal"] = Proposal(**state["proposal"])
    return _not_ahead(State(**{**state, "attached": False}), now)


def _not_ahead(state: State, now: float) -> State:
    """A state that was entered in the future was written before the machine's clock was set back: its times go back as far, or
    a rest of seconds would last for as long as the clock was wrong.
    """
    ahead = state.entered - now
    if ahead <= 0.0:
        return state
    paused_until = None if state.paused_until is None else state.paused_until - ahead
    return replace(state, entered=now, not_before=state.not_before - ahead, paused_until=paused_until)
