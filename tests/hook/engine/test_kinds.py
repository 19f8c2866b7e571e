"""What is known of how long runs take, by which switches decide how long to hold others back."""

from __future__ import annotations

from stepd.hook.engine.kinds import Kind, patience, step_kind


def test_a_run_that_a_switch_held_back_says_nothing_of_how_short_runs_are() -> None:
    """The hold may have begun long before the run: taken off its time, nothing would be left, and no switch would wait at all."""
    kind = Kind(step_kind([], ["loss:0"], []), ((), (), ()))
    kind.ran(0.09, held=0.0)
    kind.ran(0.08, held=0.17)
    assert kind.least == 0.09
    kind.ran(0.07, held=0.0)
    assert kind.least == 0.07
    assert patience([kind], 10.0) > 0.07


def test_a_first_run_that_a_switch_held_back_counts_for_what_is_certain_until_another_ran() -> None:
    """It may have been blocked in a queue that the switch kept from being filled: the next switch does not wait for that long."""
    kind = Kind(step_kind([], ["batch:0"], []), ((), (), ()))
    kind.ran(10.1, held=10.0)
    assert patience([kind], 10.0) < 1.0
    kind.ran(0.5, held=0.0)
    assert kind.least == 0.5
    kind.ran(0.4, held=0.0)
    assert kind.least == 0.4
