"""What counts as a plain step of a strategy, and what the daemon is told of."""

from __future__ import annotations

import threading
from random import Random

import pytest

from stepd.hook.clock import WARM_UP_STEPS, SessionClock
from stepd.hook.ports import RunRecord, StepKind

TRAIN = StepKind("train", ("x:0",), ("loss:0",), ("train_op",))
INIT = StepKind("init", (), (), ("init",))
EVAL = StepKind("eval", (), ("accuracy:0",), ())


def record(seconds: float, kind: StepKind = TRAIN, strategy: str = "", start: float = 0.0, **flags: object) -> RunRecord:
    values = {"traced": False, "metadata": None, "switched": False, "first_on_strategy": False, "error": "", "batch": ()}
    return RunRecord(kind, strategy, start, seconds, **(values | flags))  # type: ignore[arg-type]


def warmed_up() -> SessionClock:
    clock = SessionClock()
    for _ in range(WARM_UP_STEPS):
        assert not clock.add(record(9.0))[1]
    return clock


@pytest.mark.parametrize("flag", [{"traced": True}, {"switched": True}, {"first_on_strategy": True}, {"error": "AbortedError"}])
def test_runs_that_say_nothing_about_the_strategy_do_not_count(flag: dict[str, object]) -> None:
    clock = warmed_up()
    kind, counted = clock.add(record(5.0, **flag))
    assert not counted
    assert not kind.recent
    assert kind.take_unreported() == {}


def test_a_new_strategy_starts_afresh_and_warms_up_again() -> None:
    clock = warmed_up()
    for _ in range(3):
        clock.add(record(1.0))
    for seconds in (7.0, 6.0, 2.0, 2.5):
        kind, _ = clock.add(record(seconds, strategy="a"))
    assert list(kind.recent) == [2.0, 2.5]
    assert kind.take_unreported() == {"": [1.0, 1.0, 1.0], "a": [2.0, 2.5]}
    assert kind.take_unreported() == {}


def test_the_main_kind_is_the_one_that_takes_most_of_the_time() -> None:
    clock = SessionClock()
    for _ in range(10):
        clock.add(record(0.01, EVAL))
    clock.add(record(100.0, INIT))  # once: it is over
    clock.add(record(0.5))
    clock.add(record(0.5))
    main = clock.main_kind()
    assert main is not None
    assert main.kind is TRAIN
    assert clock.shares() == pytest.approx({"train": 1.0 / 101.1, "eval": 0.1 / 101.1, "init": 100.0 / 101.1})


def test_a_phase_that_is_over_fades() -> None:
    clock = SessionClock()
    for _ in range(10):
        clock.add(record(1.0, EVAL))
    for _ in range(5):
        clock.forget_half()
        clock.add(record(1.0))
    assert clock.main_kind() is clock.kinds["train"]


def test_gaps_are_the_time_between_runs() -> None:
    clock = SessionClock()
    clock.add(record(1.0, start=10.0))
    clock.add(record(1.0, start=11.5))
    clock.add(record(1.0, start=13.0))
    assert clock.mean_gap() == pytest.approx(0.5)


def test_time_on_threads_of_queue_runners_does_not_count() -> None:
    """They start first and are blocked most of the time."""
    clock = SessionClock()

    def feed() -> None:
        for _ in range(5):
            clock.add(record(100.0, EVAL))

    runner = threading.Thread(target=feed)
    runner.start()
    runner.join()
    assert clock.main_kind() is clock.kinds["eval"]  # nobody else drives the session yet
    clock.kinds.clear()
    for _ in range(2):
        clock.add(record(0.1))
    assert clock.driving()
    runner = threading.Thread(target=feed)
    runner.start()
    runner.join()
    assert clock.main_kind() is clock.kinds["train"]
    assert clock.shares() == {"train": 1.0, "eval": 0.0}
    assert clock.kinds["eval"].runs == 5


def test_what_is_noted_counts_as_what_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of two kinds on two threads, some of them noted: all figures are as if the clock had heard of each at once."""
    random = Random(3)
    told, noted = SessionClock(), SessionClock()
    now, here = 0.0, threading.get_ident()
    for k in range(300):
        kind, seconds, thread = random.choice([TRAIN, EVAL]), random.uniform(0.01, 0.1), here if k % 7 else here + 1
        now += random.uniform(0.0, 0.01)
        strategy = "a" if 100 <= k < 200 else ""
        run = record(seconds, kind, strategy, now)
        with monkeypatch.context() as patched:
            patched.setattr(threading, "get_ident", lambda thread=thread: thread)
            told.add(run)
            clock = noted._kinds.get(kind.id)  # without a look at what was noted
            if clock is not None and clock.warm and clock.strategy_id == strategy and k % 5:
                clock.notes.ended.append((kind, now, seconds, thread))
            else:
                noted.add(run)
        now += seconds
    assert noted.shares() == pytest.approx(told.shares()) and noted.mean_gap() == pytest.approx(told.mean_gap())
    for name, clock in noted.kinds.items():
        other = told.kinds[name]
        assert (clock.runs, list(clock.recent)) == (other.runs, list(other.recent))
        assert clock.take_unreported() == other.take_unreported()
