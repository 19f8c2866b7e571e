"""Strategies that were on trial when their job's process ended.

One that takes its process down (memory that runs out, a crash, a step that never ends and is killed) has no verdict, and the next
run of the program would be given it again, and again. So what is on trial is written down before it is sent and taken back with the
verdict; what is left of a process that is gone counts as a verdict when the graph comes again. Knows rows of the store; what a
session does next is `core.activation`'s.
"""

from __future__ import annotations

from typing import Any

from stepd.core.activation_values import Phase, State
from stepd.daemon.jobs import Registry
from stepd.daemon.store import Store

ENDED = "the job's process ended while this strategy was on trial"
_PHASES = frozenset({Phase.PROPOSED, Phase.SWITCHING, Phase.VERIFYING})
_LOST = frozenset({"ROLLED_BACK", "FAILED"})


def strategy_on_trial(state: State) -> str:
    """The strategy whose verdict is awaited, from when it is sent; "" for none."""
    if state.phase not in _PHASES:
        return ""
    return state.proposal.id if state.proposal is not None else state.in_force


def settle(store: Store, registry: Registry, fingerprint: str, devices: str, unix: float) -> None:
    """Write down a verdict for each strategy of this graph and these devices whose process is gone. Raises StoreError.

    One that had won before is not blamed the first time: programs are also killed for other reasons.
    """
    for job_id, session_id, strategy_id in store.on_trial(fingerprint, devices):
        job = registry.get(job_id)
        if job is not None and job.attached:
            continue
        last = next((t for t in reversed(store.trials_of_graph(fingerprint, devices)) if t["strategy_id"] == strategy_id), None)
        outcome = "ABANDONED" if last is not None and last["outcome"] == "KEPT" else "FAILED"
        info = _info(session_id, strategy_id, outcome, unix)
        store.put_trial(job_id, f"ended {session_id} {strategy_id} {unix}", fingerprint, devices, info)
        store.end_trial(job_id, session_id)


def known(store: Store, fingerprint: str, devices: str) -> tuple[frozenset[str], int]:
    """(strategies that lost on this graph and these devices, how many processes in a row have ended on a trial since one was kept).
    Raises StoreError.
    """
    trials = store.trials_of_graph(fingerprint, devices)
    last = {trial["strategy_id"]: trial["outcome"] for trial in trials}
    ended = 0
    for trial in reversed(trials):
        if trial["outcome"] == "KEPT":
            break
        ended += trial["reason"] == ENDED
    return frozenset(strategy for strategy, outcome in last.items() if outcome in _LOST), ended


def _info(session_id: str, strategy_id: str, outcome: str, unix: float) -> dict[str, Any]:
    """A trial as `convert.job.trial_info` writes it; nobody measured anything."""
    return {
        "strategy_id": strategy_id,
        "session_id": session_id,
        "unix_nanos": int(unix * 1e9),
        "origin": "",
        "algorithm": "",
        "way": 0,
        "predicted_seconds": 0.0,
        "measured_seconds": 0.0,
        "before_seconds": 0.0,
        "outcome": outcome,
        "reason": ENDED,
        "p_value": 0.0,
    }
