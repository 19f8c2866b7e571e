"""A paper training process under a real daemon: it becomes faster, and what the daemon promised is what it
got.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing

import pytest

from stepd.core.cost.models import CostModels
from stepd.daemon import codec
from stepd.daemon.on_trial import ENDED
from stepd.v1 import operator_pb2, runtime_pb2

DEVICES = tuple(f"/job:worker/replica:0/task:{k}/device:CPU:0" for k in range(2))
DEVICE_0 = DEVICES[0]


def test_a_job_is_profiled_planned_switched_and_committed(daemon, attach, towers, wait_until):
    hook = attach(daemon, towers)
    hook.open()
    hook.run_steps()
    hook.profile(3)
    wait_until("committed", lambda: daemon.session(hook.job_id).state == "COMMITTED")
    session = daemon.session(hook.job_id)
    before, _ = towers.step({})
    after, _ = towers.step(hook.placement)
    assert after < 0.6 * before
    assert session.seconds_before == pytest.approx(before)
    assert session.seconds_now == pytest.approx(after, rel=1e-3)
    assert session.predicted_seconds == pytest.approx(after, rel=0.1)
    history = daemon.operator(lambda stub: stub.GetHistory(operator_pb2.GetHistoryRequest(job=hook.job_id), timeout=10))
    assert [trial.best for trial in history.trial] == [True]
    assert history.trial[0].strategy_id == hook.strategy_id


def test_a_strategy_that_loses_is_not_tried_again(daemon, attach, towers, wait_until):
    """The paper guard rejects everything: trials end, each with another strategy, and the job is on its own placement."""
    hook = attach(daemon, towers)
    hook.judge = lambda before, after: runtime_pb2.Verdict.ROLLED_BACK
    hook.open()
    hook.run_steps()
    hook.profile(3)
    wait_until("a first trial", lambda: hook.activations)
    wait_until("rolled back", lambda: daemon.session(hook.job_id).last_trial.outcome == runtime_pb2.Verdict.ROLLED_BACK)
    lost = hook.activations[0].strategy.id
    wait_until("another round", lambda: daemon.log().count('"phase": "PLANNING"') >= 2)
    wait_until("and its end", lambda: daemon.session(hook.job_id).state in ("WATCHING", "ROLLED_BACK"))
    assert [sent.strategy.id for sent in hook.activations].count(lost) == 1
    assert daemon.session(hook.job_id).strategy_id == ""


def test_kill_minus_9_loses_nothing_acknowledged(daemon, attach, towers, wait_until):
    """Killed between activation and verdict; the hook decides alone, comes back, and says it again."""
    hook = attach(daemon, towers)
    hook.open()
    hook.run_steps()
    hook.profile(3)
    wait_until("committed", lambda: daemon.session(hook.job_id).state == "COMMITTED")
    before = daemon.session(hook.job_id)
    os.kill(daemon.process.pid, signal.SIGKILL)
    daemon.process.wait()
    assert hook.ended.wait(30)
    daemon.restart()
    remembered = daemon.session(hook.job_id)
    assert (remembered.strategy_id, remembered.state) == (before.strategy_id, "CLOSED")
    again = attach(daemon, towers, job_id=hook.job_id)
    again.placement, again.strategy_id, again.told = hook.placement, hook.strategy_id, hook.told
    again.open()
    again.run_steps()
    wait_until("attached", lambda: daemon.session(hook.job_id).state == "COMMITTED")
    session = daemon.session(hook.job_id)
    assert session.strategy_id == before.strategy_id
    assert session.last_trial.strategy_id == before.strategy_id
    assert session.seconds_before == pytest.approx(before.seconds_before)
    with closing(sqlite3.connect(daemon.state / "stepd.sqlite3")) as database:
        (blob,) = database.execute("SELECT blob FROM models").fetchone()
    models = CostModels.from_state(codec.loads(blob))
    assert models.steps >= 3
    assert models.computation.at_batch(DEVICE_0, 32)["left/op0"] == pytest.approx(towers.op_seconds, rel=1e-3)


def test_a_new_job_on_the_same_graph_starts_with_what_was_learned(daemon, attach, towers, wait_until):
    first = attach(daemon, towers)
    first.judge = lambda before, after: runtime_pb2.Verdict.ROLLED_BACK
    first.open()
    first.run_steps()
    first.profile(3)
    wait_until("a verdict", lambda: daemon.session(first.job_id).last_trial.strategy_id)
    lost = first.activations[0].strategy.id
    first.close()
    second = attach(daemon, towers)
    second.open()
    second.run_steps()
    second.profile(2)
    wait_until("a plan", lambda: daemon.session(second.job_id).note not in ("", "planning") or second.activations)
    assert lost not in [sent.strategy.id for sent in second.activations]


def test_what_a_process_did_not_survive_is_not_tried_again(daemon, attach, towers, wait_until):
    """A process that ends on a trial takes its verdict with it; the next one on that graph must not end on the same strategy."""
    first = attach(daemon, towers)

    def die(before: float, after: float) -> int:
        first._stream.cancel()
        return runtime_pb2.Verdict.KEPT  # nobody hears of it

    first.judge = die
    first.open()
    first.run_steps()
    first.profile(3)
    assert first.ended.wait(60)
    wait_until("gone", lambda: daemon.jobs() == [])
    fatal = first.activations[0].strategy.id
    second = attach(daemon, towers)
    second.open()
    second.run_steps()
    second.profile(2)
    wait_until("a plan", lambda: daemon.session(second.job_id).note not in ("", "planning") or second.activations)
    assert fatal not in [sent.strategy.id for sent in second.activations]
    history = daemon.operator(lambda stub: stub.GetHistory(operator_pb2.GetHistoryRequest(job=first.job_id), timeout=10))
    told = [(trial.strategy_id, trial.outcome, trial.reason) for trial in history.trial]
    assert told == [(fatal, runtime_pb2.Verdict.FAILED, ENDED)]


def test_steps_from_before_a_switch_do_not_undo_it(daemon, attach, towers, wait_until):
    hook = attach(daemon, towers)
    hook.open()
    hook.run_steps()
    wait_until("graph is known", lambda: daemon.session(hook.job_id).ops)
    one = json.dumps({"placement": dict.fromkeys(towers.names, DEVICES[0])}).encode()
    request = operator_pb2.ActivateRequest(job="towers.py", strategy_json=one, pin=True)
    answer = daemon.operator(lambda stub: stub.ActivateStrategy(request, timeout=10))
    wait_until("committed", lambda: daemon.session(hook.job_id).state == "COMMITTED")
    late, in_force = daemon.session(hook.job_id).steps + 7, hook.strategy_id
    for kind, steps in (("train", late - 1), ("summary", late)):  # the second for us to know that the first was heard of
        times = runtime_pb2.StepTimes(session_id=hook.session_id, kind=kind, seconds=[0.5], total_steps=steps)
        hook.send(step_times=times)
    wait_until("the late steps were heard of", lambda: daemon.session(hook.job_id).steps == late)
    assert daemon.session(hook.job_id).state == "COMMITTED"
    assert daemon.session(hook.job_id).strategy_id == in_force == answer.strategy_id


def test_an_operator_activates_pins_and_rolls_back(daemon, attach, towers, wait_until):
    hook = attach(daemon, towers)
    hook.open()
    hook.run_steps()
    bad = {op: DEVICES[k % 2] for k, op in enumerate(towers.names)}
    wait_until("graph is known", lambda: daemon.jobs()[0].session and daemon.session(hook.job_id).ops)
    request = operator_pb2.ActivateRequest(job="towers.py", strategy_json=json.dumps({"placement": bad}).encode(), pin=True)
    answer = daemon.operator(lambda stub: stub.ActivateStrategy(request, timeout=10))
    wait_until("committed", lambda: daemon.session(hook.job_id).state == "COMMITTED")
    assert hook.activations[0].pin and hook.activations[0].origin == "operator"
    assert daemon.session(hook.job_id).strategy_id == answer.strategy_id
    daemon.operator(lambda stub: stub.RollBack(operator_pb2.RollbackRequest(job=hook.job_id), timeout=10))
    wait_until("back", lambda: daemon.session(hook.job_id).strategy_id == "")
    assert hook.placement == {}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains(daemon, attach, towers, number):
    hook = attach(daemon, towers)
    assert hook.welcome.wait(30)
    daemon.process.send_signal(number)
    assert daemon.process.wait(30) == 0
    assert hook.ended.wait(30)
    assert not daemon.socket.exists()


def test_a_profile_that_outruns_the_graph_teaches_nothing_wrong(daemon, attach, towers, wait_until):
    hook = attach(daemon, towers)
    assert hook.welcome.wait(60)
    devices = [runtime_pb2.Device(name=name, type="CPU", usable=True) for name in DEVICES]
    hook.send(session_opened=runtime_pb2.SessionOpened(session_id="s1", device=devices))
    hook.profile(3)
    hook.open()
    hook.run_steps()
    wait_until("profiles asked for", lambda: any(message.HasField("profile") for message in hook.received))
    wait_until("committed", lambda: daemon.session(hook.job_id).state == "COMMITTED")
    with closing(sqlite3.connect(daemon.state / "stepd.sqlite3")) as database:
        assert [row[0] for row in database.execute("SELECT fingerprint FROM models")] == ["f" * 64]
