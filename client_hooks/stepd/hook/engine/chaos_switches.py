"""Makes the switches of the chaos setting on one session, on the thread whose run is due. An instrument for tests.

It must not know how strategies are drawn (see `chaos`).
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING

from stepd.hook.engine import requests, restarts
from stepd.hook.engine.chaos import ChaosMonkey
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.shield import at_work, unbroken
from stepd.hook.log import logger as log
from stepd.hook.model import SwitchOutcome, Way

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine


def switch(engine: SessionEngine, chaos: ChaosMonkey, kind: Kind) -> bool:
    """Switch if a switch is due before this run of `kind`; was it?"""
    if not chaos.due() or not engine.has_graph() or at_work.leaving or sys.is_finalizing():
        return False
    if why := engine.left_alone():
        if chaos.is_news(why):
            engine.told.tell("switch_done", SwitchOutcome("", Way.RESTART if chaos.only_restarts else Way.IN_SESSION, False, why))
        return False
    for outcome in unbroken(functools.partial(_tried, engine, chaos, kind)):  # what a signal handler raises is the program's
        engine.told.tell("switch_done", outcome)
    return True


def _tried(engine: SessionEngine, chaos: ChaosMonkey, kind: Kind) -> list[SwitchOutcome]:
    try:
        return _outcomes(engine, chaos, kind)
    except Exception:  # the program's own run comes next on this thread
        log.exception("session %s: a chaos switch failed (STEPD_CHAOS) before a run of %s", engine.session_id, kind.step.id)
        return []


def _outcomes(engine: SessionEngine, chaos: ChaosMonkey, kind: Kind) -> list[SwitchOutcome]:
    """One switch; a restart that is not possible is made up for in session, unless only restarts are wanted.

    A session that is full of copies is restarted whatever way is wanted, as one under a daemon is; where that is not possible the
    copies that there are serve on.
    """
    outcomes: list[SwitchOutcome] = []
    with engine.lock:
        if engine.left_alone():  # since another thread's run
            return []
        switcher = engine.switcher()
        full = switcher.making.made >= engine.settings.copies
        if (chaos.way() is Way.RESTART or (full and chaos.may_compact())) and not chaos.rests():
            strategy = chaos.strategy(switcher.units(), [])
            most = chaos.patience(Way.RESTART, engine.settings.gate_seconds)
            restarted = restarts.restart_now(engine, strategy, [kind], 0.0, once=most)
            chaos.came_to(Way.RESTART, restarted.quiet)
            outcomes.append(restarted.outcome)
            if restarted.outcome.ok:
                return outcomes
            chaos.could_not_compact()
        if chaos.only_restarts:
            return outcomes
        kept = [copy.plan.strategy for copy in switcher.making.kept.values()]
        strategy = chaos.strategy(switcher.units(), kept if full else [])
        most = chaos.patience(Way.IN_SESSION, engine.settings.gate_seconds)
        outcomes.append(requests.switch_now(engine, switcher, strategy, [kind], most))
        chaos.came_to(Way.IN_SESSION, outcomes[-1].ok)
    return outcomes
