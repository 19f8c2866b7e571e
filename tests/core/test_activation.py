"""Transcripts of the activation machine: a command, then the log that it must give (testdata/activation/*.txt).

    after SECONDS            time passes, one tick
    EVENT key=value ...      an event of activation_values by its name; proposals as propose=ID:SECONDS[:lost-near]

REWRITE_TRANSCRIPTS=1 writes what the machine says; read the difference before committing it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core import activation_values as values
from stepd.core.activation import step
from stepd.core.activation_moves import awaits_verdict
from stepd.core.activation_values import Outcome, Phase, Proposal, Settings, State

TRANSCRIPTS = sorted((Path(__file__).parent / "testdata" / "activation").glob("*.txt"))
SETTINGS = Settings(profile_steps=2, max_profiles=4, cool_down_seconds=10, improve_seconds=60, recheck_seconds=600, max_losses=3)


def _value(text: str) -> object:
    if text in ("yes", "no"):
        return text == "yes"
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text


def _proposal(text: str) -> Proposal:
    name, seconds, *rest = text.split(":")
    return Proposal(name, float(seconds), "heft", near_lost=bool(rest))


def _event(line: str) -> values.Event:
    name, *pairs = line.split()
    fields = dict(pair.split("=", 1) for pair in pairs)
    if name == "Planned":
        proposals = tuple(_proposal(text) for text in fields.get("propose", "").split(",") if text)
        return values.Planned(proposals, float(fields["error"]), float(fields["error"]))
    if name == "OperatorActivated":
        return values.OperatorActivated(_proposal(fields["propose"]), fields.get("pin") == "yes")
    arguments = {key: _value(text) for key, text in fields.items()}
    if name == "Judged":
        arguments["outcome"] = Outcome(arguments["outcome"])
    return getattr(values, name)(**arguments)


def _effect(effect: values.Effect) -> str:
    match effect:
        case values.Activate(proposal, pin):
            return f"Activate {proposal.id} origin={proposal.origin}{' pin' if pin else ''}"
        case values.RollBack(reason):
            return f"RollBack: {reason}"
        case _:
            return f"{type(effect).__name__} {' '.join(str(value) for value in vars(effect).values())}".strip()


def play(commands: list[str]) -> list[tuple[str, list[str]]]:
    state, now, log = State(), 1000.0, []
    for command in commands:
        if command.startswith("after "):
            now += float(command.split()[1])
            event: values.Event = values.Tick()
        else:
            event = _event(command)
        before = state
        state, effects = step(state, event, now, SETTINGS)
        said = [f"{state.phase.value}{f' on {state.in_force}' if state.in_force else ''}"]
        if state.note != before.note:
            said.append(f"note: {state.note}")
        log.append((command, said + [f"-> {_effect(effect)}" for effect in effects]))
    return log


@pytest.mark.parametrize("file", TRANSCRIPTS, ids=lambda file: file.stem)
def test_transcript(file: Path) -> None:
    text = file.read_text()
    lines = text.splitlines()
    commands = [line.removeprefix("> ") for line in lines if line.startswith("> ")]
    head = [line for line in lines if line.startswith("#")]
    written = "\n".join(head) + "\n"
    for command, said in play(commands):
        written += f"\n> {command}\n" + "".join(f"{line}\n" for line in said)
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        file.write_text(written)
    assert written == text


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 6


PROPOSALS = st.builds(Proposal, st.sampled_from(["a", "b", "c"]), st.floats(0.01, 2.0), st.just("heft"), near_lost=st.booleans())
EVENTS = st.one_of(
    st.just(values.Tick()),
    st.builds(values.Attached, st.booleans()),
    st.builds(values.GraphReported, st.sampled_from(["f", "g"]), st.just(10), st.integers(1, 2)),
    st.builds(values.Profiled, st.booleans(), st.booleans()),
    st.builds(values.Measured, st.sampled_from(["", "a", "b"]), st.floats(0.01, 2.0)),
    st.builds(values.Planned, st.lists(PROPOSALS, max_size=3).map(tuple), st.floats(0, 1)),
    st.builds(values.PlanningFailed, st.just("out of time")),
    st.builds(values.HookSaid, st.sampled_from(["watching", "switching", "verifying"])),
    st.builds(values.Switched, st.sampled_from(["", "a", "b"]), st.booleans(), st.just("e"), st.booleans()),
    st.builds(values.Judged, st.sampled_from(["a", "b"]), st.sampled_from(Outcome), st.just("r"), st.just(1.0), st.floats(0.1, 2)),
    st.builds(values.OperatorActivated, PROPOSALS, st.booleans()),
    st.just(values.OperatorRolledBack()),
    st.builds(values.Paused, st.sampled_from([0.0, 5.0])),
    st.just(values.Resumed()),
)


@settings(deadline=None)
@given(st.lists(st.tuples(EVENTS, st.sampled_from([0.0, 1.0, 20.0, 5000.0])), max_size=60))
def test_whatever_comes_the_planner_never_proposes_what_lost_nor_while_paused_or_pinned(events) -> None:
    state, now = State(), 0.0
    for event, wait in events:
        now += wait
        state, effects = step(state, event, now, SETTINGS)
        for effect in effects:
            if isinstance(effect, values.Activate) and effect.proposal.origin == "planner":
                assert effect.proposal.id not in state.lost
                assert not effect.proposal.near_lost
                assert state.paused_until is None
                assert effect.proposal.predicted_seconds <= state.now_seconds * (1 - SETTINGS.margin)
            if isinstance(effect, values.Plan | values.Profile) and not isinstance(event, values.Switched):
                assert state.attached
                assert state.paused_until is None
        assert (state.phase in (Phase.PROPOSED, Phase.SWITCHING)) <= (state.proposal is not None)


@settings(deadline=None)
@given(st.integers(0, 40))
def test_a_session_in_which_every_strategy_loses_comes_to_rest(tries: int) -> None:
    """Never worse: the number of trials is bounded, with rests that double (FastT's published code restarts for ever)."""
    state, now, activations = State(), 0.0, 0
    for event in (values.Attached(), values.GraphReported("f", 10, 2), values.Measured("", 1.0)):
        state, _ = step(state, event, now, SETTINGS)
    for attempt in range(tries):
        now += SETTINGS.max_cool_down_seconds
        state, effects = step(state, values.Tick(), now, SETTINGS)
        for event in (
            values.Measured("", 1.0),
            *[values.Profiled(stable=True)] * 2,
            values.Planned((Proposal(f"s{attempt}", 0.5, "heft"),), 0.0),
        ):
            state, effects = step(state, event, now, SETTINGS)
        if any(isinstance(effect, values.Activate) for effect in effects):
            activations += 1
            for event in (
                values.Switched(f"s{attempt}", ok=True),
                values.Switched("", ok=True, rollback=True),
                values.Judged(f"s{attempt}", Outcome.ROLLED_BACK, "slower", 1.0, 1.2),
            ):
                state, _ = step(state, event, now, SETTINGS)
    assert activations == min(tries, SETTINGS.max_losses)
    assert replace(state, note="").in_force == ""


@pytest.mark.parametrize(
    ("phase", "in_force", "proposal", "strategy_id", "awaited"),
    [
        (Phase.VERIFYING, "b", "b", "b", True),
        (Phase.VERIFYING, "", "b", "b", True),  # it has gone back already
        (Phase.VERIFYING, "b", "b", "a", False),
        (Phase.COMMITTED, "b", None, "b", False),
        (Phase.VERIFYING, "", None, "", False),
    ],
)
def test_only_a_strategy_on_trial_awaits_its_verdict(phase, in_force, proposal, strategy_id, awaited) -> None:
    state = State(phase=phase, in_force=in_force, proposal=Proposal(proposal, 0.1, "heft") if proposal else None)
    assert awaits_verdict(state, strategy_id) is awaited
