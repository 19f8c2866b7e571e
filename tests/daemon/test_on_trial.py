"""What counts as a verdict of a strategy whose process is gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stepd.core.activation_values import Phase, Proposal, State
from stepd.daemon.jobs import Job, Registry
from stepd.daemon.on_trial import ENDED, known, settle, strategy_on_trial
from stepd.daemon.store import Store
from stepd.v1 import runtime_pb2

GRAPH = ("graph", "devices")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store(tmp_path / "db")) as made:
        yield made


def judged(store: Store, strategy: str, outcome: str) -> None:
    trial = {"strategy_id": strategy, "outcome": outcome, "reason": "measured"}
    store.put_trial("earlier", f"{strategy} {len(store.trials('earlier'))}", *GRAPH, trial)


def ended(store: Store, strategy: str, unix: float) -> None:
    store.begin_trial("gone", "s1", strategy, *GRAPH)
    settle(store, Registry(), *GRAPH, unix)


def test_a_strategy_that_never_won_is_blamed_at_once_and_only_once(store: Store) -> None:
    ended(store, "a", 1.0)
    settle(store, Registry(), *GRAPH, 2.0)
    assert known(store, *GRAPH) == (frozenset({"a"}), 1)
    assert [(trial["outcome"], trial["reason"]) for trial in store.trials("gone")] == [("FAILED", ENDED)]


def test_one_that_had_won_is_blamed_the_second_time(store: Store) -> None:
    judged(store, "a", "KEPT")
    ended(store, "a", 1.0)
    assert known(store, *GRAPH) == (frozenset(), 1)
    ended(store, "a", 2.0)
    assert known(store, *GRAPH) == (frozenset({"a"}), 2)
    judged(store, "a", "KEPT")
    assert known(store, *GRAPH) == (frozenset(), 0)


def test_other_graphs_taken_back_trials_and_jobs_that_are_there_count_for_nothing(store: Store) -> None:
    registry = Registry()
    registry.add(Job("here", runtime_pb2.Hello(), 0.0, send=lambda message: None))
    store.begin_trial("here", "s1", "a", *GRAPH)
    store.begin_trial("gone", "s1", "b", "graph", "other devices")
    store.begin_trial("gone", "s2", "c", *GRAPH)
    store.end_trial("gone", "s2")
    settle(store, registry, *GRAPH, 1.0)
    assert known(store, *GRAPH) == (frozenset(), 0)
    assert store.on_trial(*GRAPH) == [("here", "s1", "a")]


@pytest.mark.parametrize("phase", Phase)
def test_a_strategy_is_on_trial_from_when_it_is_sent_to_its_verdict(phase: Phase) -> None:
    awaited = phase in (Phase.PROPOSED, Phase.SWITCHING, Phase.VERIFYING)
    assert strategy_on_trial(State(phase=phase, in_force="old", proposal=Proposal("new", 1.0, "x"))) == ("new" if awaited else "")
    assert strategy_on_trial(State(phase=phase, in_force="old")) == ("old" if awaited else "")
