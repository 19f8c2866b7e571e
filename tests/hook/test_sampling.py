"""The budget rule: over any hour at most its share of wall time is lost, and learning can happen at once."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.hook.clock import WARM_UP_STEPS, SessionClock
from stepd.hook.ports import RunRecord, StepKind
from stepd.hook.sampling import FIRST_TRACES, HOUR, Budget, Sampler

TRAIN = StepKind("train", (), ("loss:0",), ())


def run(clocks: SessionClock, seconds: float, traced: bool = False, error: str = "", strategy: str = "") -> RunRecord:
    first = bool(strategy) and clocks.kinds[TRAIN.id].strategy_id != strategy
    record = RunRecord(TRAIN, strategy, 0.0, seconds, traced, None, first, False, error, ())
    clocks.add(record)
    return record


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 120.0), st.floats(0.0, 2.0)), max_size=300), st.floats(0.001, 0.1))
def test_no_hour_loses_more_than_its_share(events: list[tuple[float, float]], share: float) -> None:
    now, spent = 0.0, []
    budget = Budget(share, now)
    for wait, cost in events:
        now += wait
        budget.refill(now)
        if budget.left() > 0.0:
            budget.spend(cost)
            spent.append((now, cost))
    for begin, _ in spent:
        in_hour = [cost for at, cost in spent if begin <= at <= begin + HOUR]
        assert sum(in_hour) <= share * HOUR + max(in_hour) + 1e-6  # one step may overdraw


def test_a_short_job_may_learn_at_once() -> None:
    assert Budget(0.01, 0.0).left() >= 3.0


def sampler(budget: Budget, mode: str = "auto") -> tuple[Sampler, SessionClock]:
    made, clocks = Sampler(budget, mode), SessionClock()
    made.listening = True
    for _ in range(WARM_UP_STEPS + 6):
        run(clocks, 0.1)
    made.plan(clocks, 0.0)
    return made, clocks


def test_the_first_steps_are_traced_without_being_asked_for() -> None:
    made, clocks = sampler(Budget(0.01, 0.0))
    clock = clocks.kinds["train"]
    traced = 0
    for _ in range(50):
        wanted = made.wants(clock)
        traced += wanted
        record = run(clocks, 0.15 if wanted else 0.1, wanted)
        if wanted:
            made.traced(clock, record)
    assert traced == FIRST_TRACES


def test_what_a_trace_costs_is_what_it_takes_beyond_the_median_plain_step() -> None:
    budget = Budget(0.01, 0.0)
    made, clocks = sampler(budget)
    made.traced(clocks.kinds["train"], run(clocks, 0.4, True))
    assert abs(budget.spent - 0.3) < 1e-9


def test_expensive_traces_stop_by_themselves() -> None:
    made, clocks = sampler(Budget(0.01, 0.0))
    clock = clocks.kinds["train"]
    traced = 0
    for _ in range(FIRST_TRACES):
        if made.wants(clock):
            traced += 1
            made.traced(clock, run(clocks, 3.0, True))
    assert traced == 2


def test_nobody_listening_paused_off_and_always() -> None:
    made, clocks = sampler(Budget(0.01, 0.0))
    clock = clocks.kinds["train"]
    made.listening = False
    assert not made.wants(clock)
    made.listening, made.paused = True, True
    assert not made.wants(clock)
    off, clocks = sampler(Budget(0.01, 0.0), "off")
    assert not off.wants(clocks.kinds["train"])
    assert Sampler(Budget(0.0, 0.0), "always").wants(None)


def test_traced_runs_that_raise_end_tracing() -> None:
    made, clocks = sampler(Budget(0.01, 0.0))
    clock = clocks.kinds["train"]
    for _ in range(2):
        made.traced(clock, run(clocks, 0.1, True, "InternalError"))
    made.request_all(clocks, 10)
    made.plan(clocks, 1000.0)
    assert not made.wants(clock)


def test_the_first_steps_on_a_strategy_are_not_traced() -> None:
    """They build executors and fill caches: what they show would be learned as the new placement's costs."""
    made, clocks = sampler(Budget(0.01, 0.0))
    clock = clocks.kinds["train"]
    assert made.wants(clock)
    wanted = clock.traces_wanted
    made.traced(clock, run(clocks, 0.3, traced=True, strategy="new"))  # asked for before the switch fell on it
    assert clock.traces_wanted == wanted
    for _ in range(WARM_UP_STEPS):
        assert not made.wants(clock)
        run(clocks, 0.1, strategy="new")
    assert made.wants(clock)
