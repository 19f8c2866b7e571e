"""The program cannot tell: every program's record is the same with the hook as without, in every mode.

FIDELITY=full runs every program in every mode (tens of minutes); otherwise a core that fits into the ordinary test run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

# The first test of a mode waits for all programs of the mode.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def test_program_cannot_tell(mode: str, program: str, outcome: Callable[[str], Any], harness: ModuleType) -> None:
    plain = outcome("plain").records[program]
    assert not harness.cut_short(plain)
    found = harness.differences(plain, outcome(mode).records[program])
    assert not found, "\n".join(found[:5])


@pytest.mark.parametrize(("mode", "proof"), [("both", "switch"), ("profiled", "traced"), ("idle", "opened")])
def test_mode_was_really_in_force(mode: str, proof: str, outcome: Callable[[str], Any], harness: ModuleType) -> None:
    """Equality proves nothing when nothing was switched or traced."""
    if mode not in harness.CORE_MODES and not harness.is_full():
        pytest.skip("not among the core modes")
    events = [e for e in outcome(mode).events if e["event"] == proof and e.get("ok", True)]
    assert len(events) >= len(outcome(mode).records), outcome(mode).refusals()
    assert proof != "switch" or outcome(mode).lifted() > 0


def test_program_cannot_tell_by_callables(tmp_path: Path, harness: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIDELITY_CALLABLES", "1")
    plain, *others = (harness.run(mode, list(harness.BY_CALLABLES), tmp_path / mode) for mode in ("plain", "idle", "both"))
    for program, record in plain.records.items():
        assert not harness.cut_short(record)
        for other in others:
            assert not harness.differences(record, other.records[program]), program
    assert others[-1].switches()["in-session switched"] > 0


def test_what_is_written_by_hand_is_switched_and_cannot_tell(tmp_path: Path, harness: ModuleType) -> None:
    """No copy is refused for what Grappler would make of it: what it rewrites lies together, and what only looks other is known."""
    programs = [f"handwritten.{name}" for name in ("boxes", "cosines", "hashed", "leaky")]
    plain = harness.run("plain", programs, tmp_path / "plain")
    other = harness.run("in-session", programs, tmp_path / "other", every=1)
    for program, record in plain.records.items():
        assert not harness.cut_short(record)
        assert not harness.differences(record, other.records[program]), program
    assert other.switches()["in-session switched"] > 40
    assert not [why for why in other.refusals() if "Grappler" in why]


def test_script_cannot_tell(mode: str, script: str, tmp_path: Path, harness: ModuleType) -> None:
    plain = harness.run_process("plain", script, tmp_path / "plain").records[script]
    other = harness.run_process(mode, script, tmp_path / mode).records[script]
    assert not harness.differences(plain, other)


class TestTheComparisonItself:
    """It must be able to fail."""

    def test_one_bit_is_a_difference(self, harness: ModuleType) -> None:
        assert harness.differences([["loss", {"hex": "0000803f"}]], [["loss", {"hex": "0100803f"}]])

    def test_a_missing_note_is_a_difference(self, harness: ModuleType) -> None:
        assert harness.differences([["a", 1], ["b", 2]], [["a", 1]])

    def test_a_program_that_plainly_ends_early_is_told(self, harness: ModuleType) -> None:
        assert harness.cut_short([["a", 1], ["the program ended with", {"type": "TypeError"}]])
        assert not harness.cut_short([["an error", {"type": "TypeError"}], ["a", 1]])

    def test_only_one_frame_more_is_allowed(self, harness: ModuleType) -> None:
        plain = [["error frames", {"frames": ["p.py:main", "session.py:run"]}]]
        one = [["error frames", {"frames": ["p.py:main", "session.py:run", "intercept.py:run"]}]]
        two = [["error frames", {"frames": ["p.py:main", "session.py:run", "intercept.py:run", "engine.py:run"]}]]
        assert not harness.differences(plain, one)
        assert harness.differences(plain, two)

    def test_the_hooks_frame_is_taken_from_a_traceback_and_nothing_else(self, harness: ModuleType) -> None:
        text = 'Traceback:\n  File "/x/p.py", line 1\n    a()\n  File "/x/stepd/hook/i.py", line 2\n    b()\n    ^^^\nError: x'
        assert harness.own_lines(text) == ["Traceback:", '  File "/x/p.py", line 1', "    a()", "Error: x"]
