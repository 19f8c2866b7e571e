"""How a session of the activation machine enters a phase, rests and loses: what `activation`'s transitions share. Pure."""

from __future__ import annotations

from dataclasses import replace

from stepd.core.activation_values import Phase, Settings, State


def enter(state: State, phase: Phase, now: float, note: str | None = None) -> State:
    """The state in another phase, from `now` on; without a note the old one stays."""
    return replace(state, phase=phase, entered=now, note=state.note if note is None else note)


def rest(state: State, now: float, note: str) -> State:
    """Where a session waits when nothing is to be done: on a strategy it keeps, or on the program's own
    placement.
    """
    return enter(state, Phase.COMMITTED if state.in_force else Phase.WATCHING, now, note)


def awaits_verdict(state: State, strategy_id: str) -> bool:
    """Is this strategy on trial? A daemon that died between writing a verdict down and drawing its conclusion hears it again."""
    on_trial = (state.in_force, state.proposal.id if state.proposal else "")
    return state.phase is Phase.VERIFYING and bool(strategy_id) and strategy_id in on_trial


def give_up_round(state: State, now: float, note: str) -> State:
    """Profiling or planning ended without an answer: what was learned still asks for a plan."""
    return replace(rest(state, now, note), profiles=0, changed=True)


def lose(state: State, now: float, settings: Settings, note: str, *, remember: bool, strategy_id: str | None = None) -> State:
    """A strategy lost, or a round came to nothing. `remember`: it is not proposed again. strategy_id: who, if not the proposal."""
    loser = strategy_id or (state.proposal.id if state.proposal else "")
    lost = state.lost | {loser} if remember and loser else state.lost
    state = replace(enter(state, Phase.ROLLED_BACK, now, note), lost=lost, losses=state.losses + 1, proposal=None)
    state = replace(state, changed=True)  # what was learned while it ran, and without it, is worth another plan
    return replace(state, not_before=now + cool_down(state, settings), now_seconds=0.0, settled_seconds=0.0, pinned=False)


def cool_down(state: State, settings: Settings) -> float:
    """Seconds of rest after the losses so far."""
    return min(settings.cool_down_seconds * 2.0 ** max(state.losses - 1, 0), settings.max_cool_down_seconds)
