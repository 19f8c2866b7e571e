"""Raw sessions are known by their addresses, which TensorFlow uses again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepd.hook.engine import answers, capi, intercept, patches, restarts
from stepd.hook.engine.registry import Registry
from stepd.hook.engine.settings import Chaos

tf = pytest.importorskip("tensorflow.compat.v1")


class Named:
    session_id = "s1"  # of all: one process may have several


def test_what_lies_where_a_replaced_session_lay_is_deleted_and_made_again() -> None:
    registry, engine = Registry[Any](), Named()
    registry.answers(engine, 1)
    registry.replaced(1, 2)
    makes, deleted = iter([1, 2, 1, 7, 8]), list[int]()
    assert registry.fresh(lambda: next(makes), deleted.append) == 7
    assert deleted == [1, 2, 1]
    assert registry.get(1) is engine and registry.get(2) is engine and registry.get(7) is None


def test_a_restart_goes_on_where_its_own_sessions_lay_but_not_where_anothers_did() -> None:
    registry, one, other = Registry[Any](), Named(), Named()
    for engine, first in ((one, 1), (other, 11)):
        registry.answers(engine, first)
        registry.replaced(first, first + 1)
    makes, deleted = iter([11, 12, 1]), list[int]()
    assert registry.fresh(lambda: next(makes), deleted.append, one) == 1
    assert deleted == [11, 12]
    registry.replaced(2, 1)
    assert registry.get(1) is one and registry.get(11) is other


def test_an_engine_that_goes_takes_all_its_sessions_and_nobody_elses() -> None:
    registry, one, other = Registry[Any](), Named(), Named()
    for engine, first in ((one, 0), (other, 100)):
        registry.answers(engine, first)
        for k in range(12):
            registry.replaced(first + k, first + k + 1)
    registry.dismiss(one, 12)
    assert not any(registry.get(k) for k in range(14))
    assert [k for k in range(100, 113) if registry.get(k) is other] == list(range(104, 113))
    registry.dismiss(other, 112)
    assert not registry._engines and not registry._retired


def test_a_plain_session_is_not_taken_for_one_that_a_restart_replaced(
    hooked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed, but not let go of, it would answer: "Session has been closed"."""
    listener = hooked(chaos=Chaos(1, "restart", devices=2), state_dir=tmp_path)
    v = tf.get_variable("v", initializer=1.0)
    session = tf.Session()
    session.run(v.initializer)
    for _ in range(3):
        session.run(v)
    assert any(outcome.ok for outcome in listener.switches)
    (engine,) = listener.engines
    session.close()
    make, made = patches._originals[capi.c, "TF_NewSessionRef"], list[Any]()

    def where_one_lay(graph: Any, options: Any) -> Any:
        made.append(make(graph, options))
        if len(made) == 1:
            answers.engines.answers(engine, made[0])
        return made[-1]

    with monkeypatch.context() as patched, tf.Graph().as_default():
        patched.setitem(patches._originals, (capi.c, "TF_NewSessionRef"), where_one_lay)
        patched.setattr(intercept, "_installed", [])
        two = tf.constant(2.0, name="two")
        with tf.Session() as plain:
            assert plain.run(two) == 2.0
            assert plain._session is made[-1] is not made[0]
            assert answers.engines.get(made[-1]) is None
    # Once more where the second one happens to lie where another lay.
    assert all(answers.engines.get(one) is not None for one in made[:-1]) and engine.closed


def test_a_restart_does_not_take_an_address_by_which_threads_of_another_session_may_call(
    hooked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = hooked(chaos=Chaos(1, "restart", devices=2), state_dir=tmp_path)
    v = tf.get_variable("v", initializer=1.0)
    add = tf.assign_add(v, 1.0, name="add")
    with tf.Session() as one, tf.Session() as two:
        two.run(v.initializer)
        of_two = listener.engines[1]
        make, made = restarts.capi.new_session, list[Any]()

        def where_one_of_two_lay(graph: Any, target: Any, config: Any) -> Any:
            made.append(make(graph, target, config))
            if len(made) == 1:
                answers.engines.answers(of_two, made[0])
            return made[-1]

        one.run(v.initializer)
        with monkeypatch.context() as patched:
            patched.setattr(restarts.capi, "new_session", where_one_of_two_lay)
            assert one.run(add) == 2.0
        assert listener.engines[0].raw is made[-1] is not made[0] and listener.switches[-1].ok
        assert answers.engines.get(made[0]) is of_two
        assert all(answers.engines.get(one) not in (None, listener.engines[0]) for one in made[:-1])
