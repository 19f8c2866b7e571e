"""Carries out what the observer asks of a session: prepares in the background, switches, verifies, reports once.

Runs on the engine's thread. It must not decide which strategy is worth a try.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import capi, names, restart
from stepd.hook.engine.copies import Copy
from stepd.hook.engine.homes import Homes
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.state import inventory
from stepd.hook.engine.switcher import NO_PLAN, NotQuietError, Switcher, SwitchRefusedError
from stepd.hook.log import logger as log
from stepd.hook.model import LiveStrategy, NotHonoured, SwitchOutcome, Way

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

Done = Callable[[SwitchOutcome], None]
# RunOptions(output_partition_graphs=True), serialized: field 5.
PARTITION_GRAPHS = b"\x28\x01"


class Verification:
    """A switch that waits for its first run, to see where the runtime has put the ops that it moved."""

    def __init__(self, copy: Copy, outcome: SwitchOutcome, done: Done) -> None:
        self.copy = copy
        self._outcome = outcome
        self._done = done

    def finish(self, metadata: bytes | None) -> None:
        """Report; `metadata` is a serialized RunMetadata with partition graphs, None when no run came."""
        outcome = self._outcome
        if metadata is not None:
            graphs = config_pb2.RunMetadata.FromString(metadata).partition_graphs
            honoured, missed = compare(self.copy, graphs)
            outcome = replace(outcome, honoured=honoured, not_honoured=(*outcome.not_honoured, *missed))
        self._done(outcome)


def compare(copy: Copy, graphs: Iterable[graph_pb2.GraphDef]) -> tuple[int, tuple[NotHonoured, ...]]:
    """(ops that are where the plan wants them, the others), of those that the partition graphs show."""
    got = {node.name: node.device for graph in graphs for node in graph.node}
    honoured = 0
    missed: list[NotHonoured] = []
    for op, asked in copy.plan.device_of.items():
        device = got.get(copy.name_of(op))
        if device == asked:
            honoured += 1
        elif device:
            missed.append(NotHonoured(op, asked, device))
    return honoured, tuple(missed)


def switch(engine: SessionEngine, strategy: LiveStrategy, way: Way, done: Done) -> None:
    """Prepare and put in force a strategy; `done` is called after the first run on it, or at once when that failed."""
    started = time.monotonic()
    why = "what moves can move inside the session"
    try:
        restarted, why = _restart_first(engine, strategy, way, why)
        if restarted is not None and not restarted.ok:
            done(restarted)
            return
        copy = _prepare(engine, strategy)
        prepared = time.monotonic() - started
        try:
            waited = _put_in_force(engine, copy, strategy.id)
        except NotQuietError:
            with engine.lock:
                switcher = engine.switcher()
                if not switcher.give_up_on_busy():
                    raise
                switcher.kept.pop(strategy.id, None)
            copy = _prepare(engine, strategy)
            waited = _put_in_force(engine, copy, strategy.id)
    except Exception as e:
        log.info("session %s: strategy %s was not put in force: %s", engine.session_id, strategy.id, e)
        done(SwitchOutcome(strategy.id, Way.IN_SESSION, ok=False, error=str(e)))
        return
    outcome = SwitchOutcome(
        strategy.id,
        Way.RESTART if restarted is not None else Way.IN_SESSION,
        ok=True,
        not_honoured=copy.plan.refused,
        prepare_seconds=prepared,
        wait_seconds=waited,
        why_this_way=why,
        order_in_force=copy.plan.order.said,
    )
    engine.verify_next_run(Verification(copy, outcome, done))


def _restart_first(engine: SessionEngine, strategy: LiveStrategy, way: Way, why: str) -> tuple[SwitchOutcome | None, str]:
    """Restart before the switch when that is asked for, or when the session is full of copies. None: not restarted."""
    if way is Way.AUTO:
        way = engine.settings.way
    with engine.lock:
        _check_open(engine)
        switcher = engine.switcher()
        full = switcher.made >= engine.settings.copies and strategy.id not in switcher.kept
        if way is Way.IN_SESSION or (way is Way.AUTO and not full):
            return None, why
        outcome = restart_now(engine, None, [], engine.settings.gate_seconds)
    if outcome.ok:
        return outcome, "restart was asked for" if way is Way.RESTART else "the session was full of copies"
    if way is Way.RESTART and not full:
        return None, f"in session, because a restart is not possible: {outcome.error}"
    return replace(outcome, strategy_id=strategy.id, rollback=False), why


def _prepare(engine: SessionEngine, strategy: LiveStrategy) -> Copy:
    with engine.lock:
        _check_open(engine)
        return engine.switcher().prepare(engine.raw, strategy, _active(engine))


def _put_in_force(engine: SessionEngine, copy: Copy | None, strategy_id: str) -> float:
    """Try until a quiet moment comes; between the attempts, which are short, nothing is held back."""
    deadline = time.monotonic() + engine.settings.gate_seconds
    pause = 0.05
    while True:
        try:
            with engine.lock:
                _check_open(engine)
                waited = engine.switcher().switch(engine.raw, copy, engine.gate, max(0.0, deadline - time.monotonic()))
                engine.in_force(strategy_id)
                return waited
        except NotQuietError:
            if time.monotonic() + pause > deadline:
                raise
        time.sleep(pause)
        pause *= 2


def switch_now(engine: SessionEngine, switcher: Switcher, strategy: LiveStrategy | None, kinds: Sequence[Kind]) -> SwitchOutcome:
    """Switch on the calling thread, at once or not at all; None: the user's own nodes. The engine's lock is held."""
    id_ = strategy.id if strategy else ""
    try:
        copy = switcher.prepare(engine.raw, strategy, kinds) if strategy else None
        waited = switcher.switch(engine.raw, copy, engine.gate, engine.settings.gate_seconds)
        engine.in_force(id_)
    except Exception as e:
        if isinstance(e, NotQuietError):
            switcher.give_up_on_busy()
        elif not isinstance(e, SwitchRefusedError):
            log.exception("session %s: a switch failed", engine.session_id)
        return SwitchOutcome(id_, Way.IN_SESSION, ok=False, error=str(e), rollback=strategy is None)
    refused = copy.plan.refused if copy else ()
    return SwitchOutcome(id_, Way.IN_SESSION, ok=True, not_honoured=refused, wait_seconds=waited, rollback=strategy is None)


def restart_now(engine: SessionEngine, strategy: LiveStrategy | None, kinds: Sequence[Kind], seconds: float) -> SwitchOutcome:
    """A new session with the state of the old one, then the strategy in it; the engine's lock is held.

    When it cannot be done the old session goes on; the outcome says why.
    """
    id_, rollback = (strategy.id if strategy else ""), strategy is None
    began = time.monotonic()
    switcher = engine.switcher()
    owned = inventory(switcher.view(), engine.kinds.history())
    obstacle = engine.restart_obstacle(owned.obstacles)
    if obstacle:
        return SwitchOutcome(id_, Way.RESTART, ok=False, error=obstacle, rollback=rollback)
    mirror = engine.mirror.compacted(names.is_own)
    raw = None
    checkpoint = None
    try:
        raw = capi.new_session(mirror.graph.handle, *engine.session_options)
        capi.extend_session(raw)
        _build(engine, raw, mirror)
        with engine.gate.hold(lambda kind: True, seconds) as quiet:
            if not quiet:
                raise NotQuietError("a run that does not end keeps the session from being restarted")
            held = time.monotonic()
            owned = inventory(switcher.view(), engine.kinds.history())
            if owned.obstacles:
                raise SwitchRefusedError(owned.obstacles[0])
            prefix = switcher.new_prefix()
            checkpoint = restart.save(engine.raw, engine.mirror, switcher.view(), owned, switcher.homes, prefix, engine.state_dir())
            restart.restore(raw, mirror, switcher.view(), checkpoint, names.prefix(0))
            restart.draw_again(raw, mirror, owned.draws)
            restart.verify(raw, mirror, switcher.view(), checkpoint, names.prefix(0) + "/is")
            engine.replace_session(raw, mirror)
            raw = None
            waited = time.monotonic() - held
    except Exception as e:
        return SwitchOutcome(id_, Way.RESTART, ok=False, error=str(e), rollback=rollback)
    finally:
        if checkpoint is not None:
            checkpoint.remove()
        if raw is not None:
            capi.delete_session(raw)
    outcome = switch_now(engine, engine.switcher(), strategy, kinds)
    prepared = time.monotonic() - began - waited
    return replace(outcome, way=Way.RESTART, prepare_seconds=prepared, wait_seconds=waited + outcome.wait_seconds)


def _build(engine: SessionEngine, raw: Any, mirror: Mirror) -> None:
    """Have the new session place and build every step that ran before, while the old one still serves. Raises what it cannot."""
    if not engine.switcher().can_build:
        return  # a master does so with the first run
    plain = Copy(NO_PLAN, mirror, Homes(mirror), lambda: "")
    for kind in _active(engine):
        route = plain.route(kind)
        capi.build_executors(raw, list(route.feeds.values()), route.fetches, route.targets)


def roll_back(engine: SessionEngine, reason: str, done: Done) -> None:
    """The user's own nodes again, variables where the program had them."""
    try:
        waited = _put_in_force(engine, None, "")
    except Exception as e:
        log.warning("session %s could not go back: %s", engine.session_id, e)
        done(SwitchOutcome("", Way.IN_SESSION, ok=False, error=str(e), rollback=True))
        return
    log.info("session %s is back on the program's own placement: %s", engine.session_id, reason)
    done(SwitchOutcome("", Way.IN_SESSION, ok=True, wait_seconds=waited, rollback=True, why_this_way=reason))


def _check_open(engine: SessionEngine) -> None:
    if engine.closed:
        raise SwitchRefusedError("the session is closed")


def _active(engine: SessionEngine) -> list[Kind]:
    """Kinds that are worth preparing: those that ran more than once."""
    return [kind for kind in engine.kinds.all() if kind.runs > 1]
