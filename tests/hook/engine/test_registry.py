"""Raw sessions are known by their addresses, which TensorFlow uses again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stepd.hook.engine import answers, capi, intercept, patches, restarts
from stepd.hook.engine.registry import Registry
from stepd.hook.engine.settings import Chaos

tf = pytest.importorskip("tensorflow.compat.v1")


class Named:
    session_id = "s1"  # of all: one process may have several


@dataclass(frozen=True)
class Raw:
    """What is at an address."""

    address: int


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
        registry.answers(engine, Raw(first))
        for k in range(12):
            registry.replaced(Raw(first + k), Raw(first + k + 1))
    registry.dismiss(one, Raw(12))
    assert not any(registry.get(Raw(k)) for k in range(14))
    assert [k for k in range(100, 113) if registry.get(Raw(k)) is other] == list(range(104, 113))
    registry.dismiss(other, Raw(112))
    assert not registry._engines and not registry._retired


def test_an_engine_answers_for_what_another_object_still_holds_however_often_it_is_replaced() -> None:
    registry, engine = Registry[Any](), Named()
    held = Raw(0)
    registry.answers(engine, held)
    for k in range(20):
        registry.replaced(Raw(k) if k else held, Raw(k + 1))
    assert [k for k in range(21) if registry.get(Raw(k)) is engine] == [0, *range(12, 21)]
    del held
    registry.replaced(Raw(20), Raw(21))
    assert [k for k in range(22) if registry.get(Raw(k)) is engine] == list(range(13, 22))


def test_an_object_that_took_over_a_sessions_attributes_goes_on_with_it(hooked: Any, tmp_path: Path) -> None:
    """It calls TensorFlow with the raw session that it took over, which is gone after a restart."""
    listener = hooked(chaos=Chaos(1, "restart", devices=2), state_dir=tmp_path)
    v = tf.get_variable("v", initializer=1.0)
    add = tf.assign_add(v, 1.0)
    session = tf.Session()

    class Wrapper(tf.Session):
        def __init__(self, inner: Any) -> None:
            self.__dict__.update(inner.__dict__)

        def __del__(self) -> None:
            pass  # the other one deletes it

    session.run(v.initializer)
    wrapper = Wrapper(session)
    names = [device.name for device in wrapper.list_devices()]
    for _ in range(12):
        session.run(add)
    assert sum(outcome.ok for outcome in listener.switches) > 9
    assert wrapper.run(v) == 13.0
    assert [device.name for device in wrapper.list_devices()] == names
    wrapper.close()
    for what in (lambda: session.run(v), session.close):
        with pytest.raises(tf.errors.CancelledError, match="Session has been closed"):
            what()


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
