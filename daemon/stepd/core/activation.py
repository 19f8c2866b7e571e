"""When to profile, plan, switch and go back: a pure state machine (docs/design.md has the diagram).

    WATCHING -> PROFILING -> PLANNING -> PROPOSED -> SWITCHING -> VERIFYING -> COMMITTED -> (drift) PROFILING
                                   any failure or slower steps -> ROLLED_BACK -> (cool-down) WATCHING

`step(state, event, now, settings)` returns the next state and the effects that the daemon's control loop
executes. It knows no clock, no wire and no planner. The hook's guard judges (it works without the daemon);
this machine decides what is tried at all: only what beats today by more than the model's own error, nothing
that lost, a bounded number of times (FastT, section 4, whose published code adopted always, never went back
and so restarted for ever).
"""

from __future__ import annotations

from dataclasses import replace

from stepd.core.activation_moves import cool_down, enter, give_up_round, lose, rest
from stepd.core.activation_values import (
    Activate,
    Attached,
    Effect,
    Event,
    GraphReported,
    HookSaid,
    Judged,
    Measured,
    OperatorActivated,
    OperatorRolledBack,
    Outcome,
    Paused,
    Phase,
    Plan,
    Planned,
    PlanningFailed,
    Profile,
    Profiled,
    Proposal,
    Resumed,
    RollBack,
    Settings,
    State,
    StopPlanning,
    Switched,
    Tick,
)

FOREVER = float("inf")
VERDICT_SECONDS, VERDICT_STEPS = 60.0, 200  # within which a verdict is due; a trial takes 5 to 50 steps
Step = tuple[State, tuple[Effect, ...]]


def step(state: State, event: Event, now: float, settings: Settings) -> Step:
    """One transition. `now`: seconds of any clock that does not go back."""
    match event:
        case Tick():
            return _tick(state, now, settings)
        case Attached():
            return _attached(state, event, now)
        case GraphReported():
            return _graph_reported(state, event, now)
        case Profiled():
            return _profiled(state, event, now, settings)
        case Measured():
            return _measured(state, event, now, settings)
        case Planned():
            return _planned(state, event, now, settings)
        case PlanningFailed():
            return _planning_failed(state, event, now, settings)
        case HookSaid():
            switching = state.phase is Phase.PROPOSED and event.state == "switching"
            return (enter(state, Phase.SWITCHING, now) if switching else state), ()
        case Switched():
            return _switched(state, event, now, settings)
        case Judged():
            return _judged(state, event, now, settings)
        case OperatorActivated():
            return _operator_activated(state, event, now)
        case OperatorRolledBack():
            return _operator_rolled_back(state, now, settings)
        case Paused():
            return _paused(state, event, now)
        case Resumed():
            return replace(state, paused_until=None, note="resumed"), ()


def _tick(state: State, now: float, settings: Settings) -> Step:
    if state.paused_until is not None and now >= state.paused_until:
        state = replace(state, paused_until=None, note="resumed after the pause")
    waited = now - state.entered
    match state.phase:
        case Phase.ROLLED_BACK if now >= state.not_before:
            return _tick(enter(state, Phase.WATCHING, now), now, settings)
        case Phase.WATCHING | Phase.COMMITTED:
            return _maybe_profile(state, now, settings)
        case Phase.PROFILING if waited > settings.profile_seconds:
            note = f"no usable profile within {settings.profile_seconds:g} s: the session may not be stepping"
            return replace(rest(state, now, note), not_before=now + settings.profile_seconds), ()
        case Phase.PROPOSED | Phase.SWITCHING if waited > settings.switch_seconds:
            note = f"the hook found no moment to switch within {settings.switch_seconds:g} s"
            return lose(state, now, settings, note, remember=False), (RollBack(note),)
        case Phase.VERIFYING if waited > VERDICT_SECONDS + VERDICT_STEPS * state.before_seconds:
            return replace(state, note=_hung(state)), ()
    return state, ()


def _hung(state: State) -> str:
    """For the operator, who can tell a program that rests from one that hangs; to end a step is not safe from here."""
    strategy = state.proposal.id if state.proposal is not None else state.in_force
    return (
        f"no verdict on {strategy[:8]} for {VERDICT_SECONDS:g} s and the time of {VERDICT_STEPS} steps: the program makes no "
        "steps, or one does not end; a program that hangs can be killed, which counts against the strategy"
    )


def _maybe_profile(state: State, now: float, settings: Settings) -> Step:
    """Start a round: the first one, one that the last switch taught something for, or the periodic check
    for drift.
    """
    if not state.attached or state.ops == 0 or state.pinned or state.paused_until is not None:
        return state, ()
    if state.usable_devices < 2:
        return replace(state, note="the session has one usable device: there is nothing to place"), ()
    if state.losses >= settings.max_losses:
        note = f"{state.losses} rounds in a row did not help; waiting for step times to drift"
        return replace(state, note=note), ()
    if now < state.not_before:
        return state, ()
    begun = enter(state, Phase.PROFILING, now, f"asking for {settings.profile_steps} profiled steps")
    if _profiled_enough(begun, settings) and begun.now_seconds > 0:
        return _plan(begun, now, settings)  # the hook sends some profiles unasked when a session starts
    return begun, (Profile(settings.profile_steps),)


def _attached(state: State, event: Attached, now: float) -> Step:
    """The hook came or came back. A plan in the making is still good; a proposal that was on its way may
    have been lost.
    """
    if not event.attached:
        stop = (StopPlanning(),) if state.phase is Phase.PLANNING else ()
        if state.phase in (Phase.PROFILING, Phase.PLANNING):
            state = give_up_round(state, now, state.note)
        return replace(state, attached=False), stop
    if state.phase in (Phase.PROPOSED, Phase.SWITCHING):
        return replace(rest(state, now, "the hook reconnected"), attached=True, proposal=None), ()
    if state.phase in (Phase.PROFILING, Phase.PLANNING):
        state = give_up_round(state, now, state.note)
    return replace(state, attached=True), ()


def _graph_reported(state: State, event: GraphReported, now: float) -> Step:
    changed = state.fingerprint not in ("", event.fingerprint)
    state = replace(state, ops=event.ops, usable_devices=event.usable_devices, fingerprint=event.fingerprint)
    if changed and state.phase in (Phase.PROFILING, Phase.PLANNING):
        stop = (StopPlanning(),) if state.phase is Phase.PLANNING else ()
        return give_up_round(state, now, "the graph was extended: starting over"), stop
    return state, ()


def _profiled(state: State, event: Profiled, now: float, settings: Settings) -> Step:
    state = replace(state, profiles=state.profiles + 1, stable=event.stable, changed=state.changed or event.worth_planning)
    if state.phase is not Phase.PROFILING:
        return state, ()
    if not _profiled_enough(state, settings):
        again = state.profiles % settings.profile_steps == 0
        return state, (Profile(settings.profile_steps),) if again else ()
    if state.now_seconds <= 0:
        return replace(state, note="profiled; waiting for the time of steps that are not profiled"), ()
    return _plan(state, now, settings)


def _profiled_enough(state: State, settings: Settings) -> bool:
    return state.profiles >= settings.profile_steps and (state.stable or state.profiles >= settings.max_profiles)


def _plan(state: State, now: float, settings: Settings) -> Step:
    state = replace(state, profiles=0, settled_seconds=state.now_seconds)
    if not state.changed:
        rested = rest(state, now, "costs did not change since the last plan")
        return replace(rested, not_before=now + settings.recheck_seconds), ()
    return replace(enter(state, Phase.PLANNING, now, "planning"), changed=False), (Plan(settings.plan_seconds),)


def _measured(state: State, event: Measured, now: float, settings: Settings) -> Step:
    """Step times are the truth about what is in force, and drift in them starts a new round."""
    if event.strategy_id != state.in_force:
        if state.phase is Phase.VERIFYING:
            return state, ()
        state = replace(state, in_force=event.strategy_id, settled_seconds=0.0)
        if state.phase in (Phase.WATCHING, Phase.COMMITTED):
            state = rest(state, now, state.note)
    first = state.now_seconds <= 0
    before = event.seconds if not event.strategy_id else state.before_seconds
    state = replace(state, now_seconds=event.seconds, before_seconds=before)
    if state.phase is Phase.PROFILING and first:
        if _profiled_enough(state, settings):
            return _plan(state, now, settings)
        if state.profiles >= settings.profile_steps:  # those that came unasked have ended before the costs were stable
            return state, (Profile(settings.profile_steps),)
    if state.phase not in (Phase.WATCHING, Phase.COMMITTED):
        return state, ()
    if state.settled_seconds <= 0:
        return replace(state, settled_seconds=event.seconds), ()
    if abs(event.seconds / state.settled_seconds - 1.0) > settings.drift:
        note = f"step time drifted from {state.settled_seconds:.4g} s to {event.seconds:.4g} s"
        state = replace(state, note=note, losses=0, changed=True, not_before=now, settled_seconds=event.seconds)
        return _maybe_profile(state, now, settings)
    return state, ()


def _planned(state: State, event: Planned, now: float, settings: Settings) -> Step:
    if state.phase is not Phase.PLANNING:
        return state, ()
    margin = max(settings.margin, min(event.gain_error, settings.max_margin))
    state = replace(state, model_error=event.model_error)
    fresh = [p for p in event.proposals if p.id not in state.lost and p.id != state.in_force and not p.near_lost]
    best = min(fresh, key=lambda p: p.predicted_seconds, default=None)
    if best is None or best.predicted_seconds > state.now_seconds * (1.0 - margin):
        found = f"the best found is {_gain(best, state)}" if best else "nothing new was found"
        note = f"{found}; a switch needs {margin:.0%} less than today"
        return replace(rest(state, now, note), not_before=now + settings.recheck_seconds), ()
    note = f"proposing {best.id[:8]} ({best.algorithm}): {_gain(best, state)}"
    return replace(enter(state, Phase.PROPOSED, now, note), proposal=best), (Activate(best, pin=False),)


def _gain(proposal: Proposal, state: State) -> str:
    change = 1.0 - proposal.predicted_seconds / state.now_seconds
    return f"predicted {proposal.predicted_seconds:.4g} s, {abs(change):.1%} {'less' if change >= 0 else 'more'} than today"


def _planning_failed(state: State, event: PlanningFailed, now: float, settings: Settings) -> Step:
    if state.phase is not Phase.PLANNING:
        return state, ()
    note = f"planning failed: {event.reason}"
    waiting = replace(rest(state, now, note), losses=state.losses + 1, changed=True)
    return replace(waiting, not_before=now + cool_down(waiting, settings)), ()


def _switched(state: State, event: Switched, now: float, settings: Settings) -> Step:
    if not event.ok:
        note = f"could not switch to {event.strategy_id[:8] or 'the own placement'}: {event.error}"
        if state.proposal is None or event.strategy_id != state.proposal.id:
            return replace(state, note=note), ()
        return lose(state, now, settings, note, remember=True), ()
    settled = state.phase in (Phase.WATCHING, Phase.COMMITTED) and state.proposal is None
    if settled and event.strategy_id == state.in_force:
        return state, ()  # said again after a reconnect: its verdict is known
    state = replace(state, in_force=event.strategy_id, now_seconds=0.0, settled_seconds=0.0)
    if event.rollback or not event.strategy_id:
        if state.phase in (Phase.SWITCHING, Phase.VERIFYING):
            return state, ()  # the verdict that comes with it says why
        return (state, ()) if state.phase is Phase.ROLLED_BACK else (rest(state, now, state.note), ())
    verifying = enter(state, Phase.VERIFYING, now, f"verifying {event.strategy_id[:8]}")
    return verifying, (Profile(settings.verify_profiles),)


def _judged(state: State, event: Judged, now: float, settings: Settings) -> Step:
    if event.outcome is Outcome.KEPT:
        kept = replace(
            enter(state, Phase.COMMITTED, now, event.reason),
            in_force=event.strategy_id,
            now_seconds=event.after_seconds,
            settled_seconds=event.after_seconds,
            losses=0,
            pinned=state.proposal is not None and state.proposal.pin,
            rounds=state.rounds + 1,
        )
        # What was learned on the new placement may show a better one still; each round waits longer than the last.
        return replace(kept, proposal=None, not_before=now + settings.improve_seconds * 4.0**state.rounds), ()
    if event.outcome is Outcome.ABANDONED:
        rested = replace(rest(state, now, event.reason), proposal=None, changed=True)
        return replace(rested, not_before=now + settings.cool_down_seconds), ()
    state = replace(state, proposal=state.proposal or Proposal(event.strategy_id, event.after_seconds, "unknown"))
    own = replace(state, in_force="" if state.in_force == event.strategy_id else state.in_force)
    return lose(own, now, settings, event.reason, remember=True, strategy_id=event.strategy_id), ()


def _operator_activated(state: State, event: OperatorActivated, now: float) -> Step:
    proposal = replace(event.proposal, origin="operator", pin=event.pin)
    stop = (StopPlanning(),) if state.phase is Phase.PLANNING else ()
    begun = enter(state, Phase.PROPOSED, now, f"the operator asked for {proposal.id[:8]}")
    return replace(begun, proposal=proposal, pinned=False), (*stop, Activate(proposal, pin=event.pin))


def _operator_rolled_back(state: State, now: float, settings: Settings) -> Step:
    note = "the operator rolled back"
    stop = (StopPlanning(),) if state.phase is Phase.PLANNING else ()
    loser = state.proposal.id if state.proposal else state.in_force
    state = lose(state, now, settings, note, remember=True, strategy_id=loser or None)
    return state, (*stop, RollBack(note))


def _paused(state: State, event: Paused, now: float) -> Step:
    until = now + event.seconds if event.seconds > 0 else FOREVER
    stop = (StopPlanning(),) if state.phase is Phase.PLANNING else ()
    if state.phase in (Phase.PROFILING, Phase.PLANNING):
        state = give_up_round(state, now, "paused")
    return replace(state, paused_until=until, note="paused by the operator"), stop
