"""The guard never keeps what is not faster, and undoes what is clearly slower within a few steps."""

from __future__ import annotations

import random

from stepd.hook import guard
from stepd.hook.guard import Decision, Samples

MIN_GAIN = 0.02


def steps(rng: random.Random, count: int, seconds: float, noise: float = 0.05) -> tuple[float, ...]:
    """Step times with the one-sided noise of a busy machine."""
    return tuple(seconds * (1.0 + abs(rng.gauss(0.0, noise))) for _ in range(count))


def decide(before: tuple[float, ...], after: tuple[float, ...], share_other: Samples | None = None) -> tuple[Decision, int]:
    """Walk the checkpoints as the director does; the decision and the steps that it took."""
    for look in guard.CHECKPOINTS:
        kinds = {"train": Samples(before, after[:look], 0.8)}
        if share_other is not None:
            kinds["eval"] = share_other
        judgement = guard.judge(kinds, "train", MIN_GAIN, last_look=look == guard.CHECKPOINTS[-1])
        if judgement.decision is not Decision.CONTINUE:
            return judgement.decision, look
    raise AssertionError("the last look did not decide")


def test_a_bad_strategy_is_recognised_after_three_steps() -> None:
    rng = random.Random(1)
    for _ in range(50):
        assert decide(steps(rng, 20, 0.1), steps(rng, 64, 0.2)) == (Decision.ROLL_BACK, 3)


def test_a_bad_strategy_is_recognised_with_the_fewest_old_steps() -> None:
    rng = random.Random(2)
    assert decide(steps(rng, guard.BASELINE_STEPS, 0.1), steps(rng, 64, 0.3)) == (Decision.ROLL_BACK, 3)


def test_no_gain_is_rolled_back_whatever_the_noise() -> None:
    rng = random.Random(3)
    kept = sum(decide(steps(rng, 30, 0.1, 0.2), steps(rng, 64, 0.1, 0.2))[0] is Decision.KEEP for _ in range(400))
    assert kept <= 8


def test_a_small_slow_down_is_rolled_back() -> None:
    rng = random.Random(4)
    assert all(decide(steps(rng, 60, 0.1), steps(rng, 64, 0.104))[0] is Decision.ROLL_BACK for _ in range(100))


def test_a_real_gain_is_kept_within_a_dozen_steps() -> None:
    rng = random.Random(5)
    results = [decide(steps(rng, 20, 0.1), steps(rng, 64, 0.07)) for _ in range(100)]
    assert all(decision is Decision.KEEP for decision, _ in results)
    assert max(looks for _, looks in results) <= 12


def test_a_modest_gain_is_kept() -> None:
    rng = random.Random(6)
    kept = sum(decide(steps(rng, 60, 0.1), steps(rng, 64, 0.095))[0] is Decision.KEEP for _ in range(100))
    assert kept >= 90


def test_a_gain_below_the_minimum_is_not_worth_it() -> None:
    before = tuple(0.1 + 0.00001 * k for k in range(40))
    after = tuple(0.0990 + 0.00001 * k for k in range(64))
    assert decide(before, after)[0] is Decision.ROLL_BACK


def test_another_kind_that_becomes_slower_outweighs_a_gain() -> None:
    rng = random.Random(7)
    slow_eval = Samples(steps(rng, 10, 0.1), steps(rng, 10, 0.5), share=0.2)
    assert decide(steps(rng, 20, 0.1), steps(rng, 64, 0.08), slow_eval)[0] is Decision.ROLL_BACK


def test_mild_effects_beside_drifting_old_steps_are_doubtful_and_strong_ones_are_not() -> None:
    drifting = tuple(0.1 + 0.002 * k for k in range(20))
    mild = guard.Judgement(Decision.KEEP, "faster", 0.001, -0.1)
    strong = guard.Judgement(Decision.KEEP, "faster", 0.001, -0.5)
    steady = tuple(0.1 + 0.0001 * (k % 7) for k in range(20))
    assert guard.doubtful(mild, drifting, 1.0)
    assert not guard.doubtful(strong, drifting, 1.0)
    assert not guard.doubtful(mild, steady, 1.0)
    assert guard.doubtful(mild, steady, 600.0)


def test_a_large_gain_over_steps_that_something_else_slowed_is_doubtful() -> None:
    slowed_half_way = tuple((0.077 if k < 20 else 0.165) + 0.0001 * (k % 7) for k in range(40))
    assert guard.doubtful(guard.Judgement(Decision.KEEP, "faster", 0.0003, -0.31), slowed_half_way, 1.0)


def test_what_is_undone_gets_a_second_look_unless_it_was_a_disaster() -> None:
    assert guard.doubtful(guard.Judgement(Decision.ROLL_BACK, "slower", 0.001, 0.4), (), 0.0)
    assert not guard.doubtful(guard.Judgement(Decision.ROLL_BACK, "slower", 0.001, 3.0), (), 0.0)


def test_a_reason_tells_the_main_kind_from_all_of_them() -> None:
    main = Samples((0.2,) * 8, (0.1,) * 8, 0.5)
    assert "(-50.0%), 8 steps" in guard.judge({"train": main}, "train", MIN_GAIN).reason
    other = Samples((0.1,) * 8, (0.12,) * 8, 0.5)
    assert "(-50.0%; over all step kinds -15.0%), 8 steps" in guard.judge({"train": main, "eval": other}, "train", MIN_GAIN).reason
