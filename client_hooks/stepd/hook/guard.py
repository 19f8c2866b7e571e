"""The guard's judgement: is the strategy on trial faster than the one before it? Pure: samples in, decision out.

"Never worse" decides every doubt: a strategy is kept only when a rank test shows that steps became faster by a minimum effect,
and undone as soon as they are clearly slower. It looks at checkpoints, so that a bad strategy costs a few steps and a good one is
kept within a few dozen. It knows no sessions, no threads and no daemon.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stepd.hook.stats import mann_whitney_less, median

BASELINE_STEPS = 5  # plain steps of the old strategy that a trial needs before it may start
CHECKPOINTS = (3, 5, 8, 12, 20, 30, 45, 64)
SIGNIFICANCE = 0.003  # at every look; the last look takes LAST_SIGNIFICANCE
LAST_SIGNIFICANCE = 0.01
CLEARLY_SLOWER = 1.3  # ratio of medians at which a mild p-value is enough to stop
CLEAR_P = 0.02
MILD_GAIN = 0.3  # gains below this need fresh steps to compare with, slow-downs below the next may be noise: see `doubtful`
MILD_LOSS = 1.0


class Decision(enum.Enum):
    """What to do with the strategy on trial."""

    CONTINUE = "continue"
    KEEP = "keep"
    ROLL_BACK = "roll back"


@dataclass(frozen=True)
class Samples:
    """Seconds of plain steps of one kind: `before` on the old strategy, `after` on the new; `share` of the session's run time."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    share: float = 1.0

    @property
    def ratio(self) -> float:
        """Median after over median before; below 1 is faster. 1.0 while either side is empty."""
        if not self.before or not self.after:
            return 1.0
        return median(self.after) / max(median(self.before), 1e-9)


@dataclass(frozen=True)
class Judgement:
    """A decision and what it rests on. `p_value`: one-sided, of the direction that the medians show; `effect`: relative change
    of time in `Session.run` over all kinds, negative is faster."""

    decision: Decision
    reason: str
    p_value: float
    effect: float


def judge(kinds: Mapping[str, Samples], main: str, min_gain: float, last_look: bool = False) -> Judgement:
    """Judge a trial now.

    Args:
        kinds: samples by step kind; `main` must be among them.
        main: the kind that takes most of the time: the rank test is on its steps.
        min_gain: relative gain below which a strategy is not worth keeping (0.02: 2 %).
        last_look: decide: what is not shown to be faster goes.
    """
    samples = kinds[main]
    n = len(samples.after)
    if not n or len(samples.before) < 2:
        return _give_up(last_look, "too few steps to compare")
    effect = overall_effect(kinds, main)
    slower = mann_whitney_less(samples.before, samples.after)
    faster = mann_whitney_less(samples.after, samples.before)
    change = f"{samples.ratio - 1.0:+.1%}"
    if f"{effect:+.1%}" != change:
        change += f"; over all step kinds {effect:+.1%}"
    medians = f"median {median(samples.after):.4g} s after {median(samples.before):.4g} s ({change}), {n} steps"
    if effect >= CLEARLY_SLOWER - 1.0 and slower <= CLEAR_P:
        return Judgement(Decision.ROLL_BACK, f"clearly slower: {medians}, p={slower:.2g}", slower, effect)
    if effect >= min_gain and slower <= SIGNIFICANCE:
        return Judgement(Decision.ROLL_BACK, f"slower: {medians}, p={slower:.2g}", slower, effect)
    bar = LAST_SIGNIFICANCE if last_look else SIGNIFICANCE
    if n >= CHECKPOINTS[1] and effect <= -min_gain and faster <= bar:
        return Judgement(Decision.KEEP, f"faster: {medians}, p={faster:.2g}", faster, effect)
    if last_look:
        why = f"no gain of {min_gain:.0%} shown: {medians}, p={faster:.2g}"
        return Judgement(Decision.ROLL_BACK, why, faster, effect)
    return Judgement(Decision.CONTINUE, medians, min(slower, faster), effect)


def overall_effect(kinds: Mapping[str, Samples], main: str) -> float:
    """Relative change of the time in `Session.run`, over the kinds that ran on both strategies, weighted by their shares."""
    weights = {
        name: samples.share
        for name, samples in kinds.items()
        if name == main or (len(samples.after) >= CHECKPOINTS[0] and len(samples.before) >= CHECKPOINTS[0])
    }
    total = sum(weights.values())
    if total <= 0.0:
        return kinds[main].ratio - 1.0
    return sum(weight * (kinds[name].ratio - 1.0) for name, weight in weights.items()) / total


def doubtful(judgement: Judgement, before: Sequence[float], seconds_since_before: float) -> bool:
    """Could the machine's own noise explain the judgement, so that fresh steps of the old strategy are worth a look?

    A strategy that is undone gets that look for nothing: the old one runs anyway. One that seems faster gets it only when the old
    steps drifted by themselves while they were measured (however large the gain seems: it may be no more than the end of what
    slowed them), or when a mild gain rests on steps that are minutes old.
    """
    if judgement.decision is Decision.ROLL_BACK:
        return judgement.effect < MILD_LOSS
    if judgement.decision is Decision.CONTINUE:
        return False
    if seconds_since_before > 120.0 and judgement.effect > -MILD_GAIN:
        return True
    half = len(before) // 2
    if half < CHECKPOINTS[1]:
        return False
    first, second = tuple(before[:half]), tuple(before[half:])
    drift = abs(median(second) / max(median(first), 1e-9) - 1.0)
    p = min(mann_whitney_less(first, second), mann_whitney_less(second, first))
    return drift >= abs(judgement.effect) / 2.0 and p <= CLEAR_P


def deserves_another_round(kinds: Mapping[str, Samples], main: str, min_gain: float) -> bool:
    """Do the trial's few steps look faster than fresh ones of the old strategy? Not proof enough to keep it, but to try again."""
    samples = kinds[main]
    if not samples.before or not samples.after or overall_effect(kinds, main) > -min_gain:
        return False
    return mann_whitney_less(samples.after, samples.before) <= CLEAR_P


def _give_up(last_look: bool, reason: str) -> Judgement:
    return Judgement(Decision.ROLL_BACK if last_look else Decision.CONTINUE, reason, 1.0, 0.0)
