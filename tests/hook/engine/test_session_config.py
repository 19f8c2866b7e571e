"""Sessions whose config asks for what a strategy would change: they stay as they are, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from stepd.hook.engine import session_config
from stepd.hook.model import LiveStrategy, Way

tf = pytest.importorskip("tensorflow.compat.v1")


def run(session: Any) -> list[float]:
    return [session.run("loss:0", {"x:0": [float(k), 2.0]}) for k in range(2)]


def refused(listener: Any, reply: Any, config: Any, way: Way) -> tuple[str, list[float]]:
    """Why a session of that config is not switched, and the losses that it goes on with."""
    tf.reduce_sum(tf.square(tf.placeholder(tf.float32, [2], name="x")), name="loss")
    with tf.Session(config=config) as session:
        (engine,) = listener.engines
        assert run(session) == [4.0, 5.0]
        engine.request_switch(LiveStrategy("s", {"Square": engine.devices()[1].name}), way, reply)
        outcome = reply.wait()
        assert not outcome.ok
        return outcome.error, run(session)


@pytest.mark.parametrize("way", [Way.IN_SESSION, Way.RESTART])
def test_an_executor_that_cannot_wait_for_another_device_is_not_made_to(
    hooked: Any, reply: Any, two_devices: Any, way: Way
) -> None:
    two_devices.experimental.executor_type = "SINGLE_THREADED_EXECUTOR"
    why, losses = refused(hooked(), reply, two_devices, way)
    assert "SINGLE_THREADED_EXECUTOR" in why and losses == [4.0, 5.0]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("memory_optimization", "HEURISTICS"),
        ("auto_mixed_precision_onednn_bfloat16", "ON"),
        ("arithmetic_optimization", "AGGRESSIVE"),
    ],
)
def test_rewriters_that_look_at_all_that_a_device_has_see_what_they_saw(
    hooked: Any, reply: Any, two_devices: Any, option: str, value: str
) -> None:
    rewriters = two_devices.graph_options.rewrite_options
    setattr(rewriters, option, type(rewriters).DESCRIPTOR.fields_by_name[option].enum_type.values_by_name[value].number)
    assert "the program chose" in refused(hooked(), reply, two_devices, Way.IN_SESSION)[0]


@pytest.mark.parametrize("flags", ["", "--tf_xla_enable_lazy_compilation=true --tf_xla_auto_jit=2"])
def test_clusters_that_xla_chooses_are_not_cut(
    hooked: Any, reply: Any, two_devices: Any, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    if flags:
        monkeypatch.setenv("TF_XLA_FLAGS", flags)
    else:
        options = two_devices.graph_options.optimizer_options
        options.global_jit_level = options.ON_1
    assert "XLA chooses" in refused(hooked(), reply, two_devices, Way.IN_SESSION)[0]


@pytest.mark.parametrize("flags", ["--tf_xla_auto_jit=0", "--tf_xla_auto_jit=-1", "--tf_xla_clustering_debug"])
def test_what_xla_is_not_told_to_choose_keeps_no_session_from_switching(monkeypatch: pytest.MonkeyPatch, flags: str) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", flags)
    assert session_config.kept_as_it_is(tf.ConfigProto()) == ""


@pytest.mark.parametrize("served", [True, False])
def test_what_tasks_round_for_each_other_stays_what_it_is(served: bool) -> None:
    """A direct session sends nothing to other tasks."""
    config = tf.ConfigProto()
    config.graph_options.enable_bfloat16_sendrecv = True
    assert ("bfloat16" in session_config.kept_as_it_is(config, served)) == served
