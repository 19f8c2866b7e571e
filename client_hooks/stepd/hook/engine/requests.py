"""Carries out what the observer asks of a session: prepares in the background, switches, verifies, reports once.

Runs on the engine's thread. It must not decide which strategy is worth a try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2

from stepd.hook import clocks
from stepd.hook.engine import restarts
from stepd.hook.engine.copies import Copy
from stepd.hook.engine.faults import reason
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.refusals import NotQuietError, SwitchRefusedError
from stepd.hook.engine.switcher import Switcher
from stepd.hook.engine.ways import Chosen, can_be_compacted, choose_way
from stepd.hook.log import logger as log
from stepd.hook.model import LiveStrategy, NotHonoured, SwitchOutcome, Way
from stepd.hook.rewrite.emit import part_name

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
        device = next((got[name] for name in copy.names_of(op) if name in got), None)
        if device == asked:
            honoured += 1
        elif device:
            missed.append(NotHonoured(op, asked, device))
    for op, chosen in copy.plan.splits.items():
        for k, asked in enumerate(chosen.devices):
            device = got.get(part_name(copy.ops.name_of(op), k), "")
            honoured += device == asked
            if device not in ("", asked):
                missed.append(NotHonoured(f"{op} (part {k})", asked, device))
    return honoured, tuple(missed)


def switch(engine: SessionEngine, strategy: LiveStrategy, way: Way, done: Done) -> None:
    """Prepare and put in force a strategy; `done` is called after the first run on it, or at once when that failed."""
    session = engine.session()  # lives until this is done
    try:
        chosen = choose_way(engine, strategy, way)
        outcome, copy = _switch(engine, strategy, chosen)
    except Exception as e:  # the session goes on as it was, and whoever asked hears why
        error = reason(e, engine.session_id, f"strategy {strategy.id} was not put in force")
        outcome, copy = SwitchOutcome(strategy.id, Way.IN_SESSION, ok=False, error=error), None
    del session
    if copy is None:
        done(outcome)
    else:
        engine.told.verify_next_run(Verification(copy, outcome, done))


def _switch(engine: SessionEngine, strategy: LiveStrategy, chosen: Chosen) -> tuple[SwitchOutcome, Copy | None]:
    if chosen.way is Way.IN_SESSION:
        return _switch_in_session(engine, strategy, chosen.why)
    kinds = active(engine)
    restarted = restarts.restart_now(engine, strategy, kinds, engine.settings.gate_seconds, spare=kinds)
    if restarted.outcome.ok:
        return replace(restarted.outcome, why_this_way=chosen.why), restarted.copy
    if chosen.only:
        return replace(restarted.outcome, error=f"{chosen.only}; {restarted.outcome.error}"), None
    return _switch_in_session(engine, strategy, f"in session, because a restart is not possible: {restarted.outcome.error}")


def _switch_in_session(engine: SessionEngine, strategy: LiveStrategy, why: str) -> tuple[SwitchOutcome, Copy]:
    started = clocks.monotonic()
    copy = _prepare(engine, strategy)
    prepared = clocks.monotonic() - started
    try:
        waited = _put_in_force(engine, copy, strategy.id)
    except NotQuietError:
        with engine.lock:
            switcher = engine.switcher()
            if not switcher.sight.give_up_on_busy():
                raise
            switcher.making.kept.pop(strategy.id, None)
        copy = _prepare(engine, strategy)
        waited = _put_in_force(engine, copy, strategy.id)
    outcome = SwitchOutcome(strategy.id, Way.IN_SESSION, ok=True, not_honoured=copy.plan.refused, prepare_seconds=prepared,
                            wait_seconds=waited, why_this_way=why, order_in_force=copy.plan.order_said,
                            splits_in_force=len(copy.plan.splits))  # fmt: skip
    return outcome, copy


def _prepare(engine: SessionEngine, strategy: LiveStrategy) -> Copy:
    with engine.lock:
        _check_open(engine)
        _check_not_left_alone(engine)
        switcher, raw = engine.switcher(), engine.raw
    copy = switcher.prepare(raw, strategy, active(engine), engine.calm)
    switcher.build_moves(copy, engine.calm)
    return copy


def _put_in_force(engine: SessionEngine, copy: Copy | None, strategy_id: str) -> float:
    """Try until a quiet moment comes; between the attempts, which are short, nothing is held back."""
    deadline = clocks.monotonic() + engine.settings.gate_seconds
    pause = 0.05
    while True:
        try:
            with engine.lock:
                _check_open(engine)
                if copy is not None:
                    _check_not_left_alone(engine)
                waited = engine.switcher().switch(engine.raw, copy, engine.gate, max(0.0, deadline - clocks.monotonic()))
                engine.in_force(strategy_id)
                return waited
        except NotQuietError:
            if clocks.monotonic() + pause > deadline:
                raise
        clocks.sleep(pause)
        pause *= 2


def switch_now(
    engine: SessionEngine, switcher: Switcher, strategy: LiveStrategy | None, kinds: Sequence[Kind], once: float = 0.0
) -> SwitchOutcome:
    """Switch on the calling thread, at once or not at all; None: the user's own nodes. The engine's lock is held.

    `once`: for how many seconds to wait for a quiet moment at most; 0: the setting.
    """
    id_ = strategy.id if strategy else ""
    try:
        copy = switcher.prepare(engine.raw, strategy, kinds) if strategy else None
        waited = switcher.switch(engine.raw, copy, engine.gate, once or engine.settings.gate_seconds)
        engine.in_force(id_)
    except Exception as e:  # the program's own run follows on this thread, and must find the session as it was
        if isinstance(e, NotQuietError):
            switcher.sight.give_up_on_busy()
        error = reason(e, engine.session_id, f"strategy {id_!r} was not put in force")
        return SwitchOutcome(id_, Way.IN_SESSION, ok=False, error=error, rollback=strategy is None)
    refused = copy.plan.refused if copy else ()
    return SwitchOutcome(id_, Way.IN_SESSION, ok=True, not_honoured=refused, wait_seconds=waited, rollback=strategy is None,
                         order_in_force=copy.plan.order_said if copy else "",
                         splits_in_force=len(copy.plan.splits) if copy else 0)  # fmt: skip


def roll_back(engine: SessionEngine, why: str, done: Done) -> None:
    """The user's own nodes again, variables where the program had them."""
    try:
        waited = _put_in_force(engine, None, "")
    except Exception as e:  # whoever asked hears why, and asks again
        error = reason(e, engine.session_id, "it could not go back to the program's own placement")
        done(SwitchOutcome("", Way.IN_SESSION, ok=False, error=error, rollback=True))
        return
    log.info("session %s is back on the program's own placement: %s", engine.session_id, why)
    done(SwitchOutcome("", Way.IN_SESSION, ok=True, wait_seconds=waited, rollback=True, why_this_way=why))


def compact(engine: SessionEngine, done: Done) -> None:
    """Restart a session that is full of copies on what is in force, where no step waits for long; `done` hears of it if so."""
    session = engine.session()  # lives until this is done
    try:
        if session is None or not can_be_compacted(engine):
            return
        live, kinds = engine.switcher().live, active(engine)
        strategy = live.plan.strategy if live else None
        outcome = restarts.restart_now(engine, strategy, kinds, engine.settings.gate_seconds, spare=kinds).outcome
    except Exception as e:  # the session stays as full as it was
        reason(e, engine.session_id, "it was not compacted")
        return
    finally:
        del session
    log.info("session %s was compacted: %s", engine.session_id, outcome.error or f"steps waited {outcome.wait_seconds:.3f} s")
    done(outcome)


def _check_open(engine: SessionEngine) -> None:
    if engine.closed:
        raise SwitchRefusedError("the session is closed")


def _check_not_left_alone(engine: SessionEngine) -> None:
    """Raise SwitchRefusedError when the session must stay on the program's own ops."""
    if why := engine.left_alone():
        raise SwitchRefusedError(why)


def active(engine: SessionEngine) -> list[Kind]:
    """Kinds that are worth preparing: those that ran more than once."""
    return [kind for kind in engine.kinds.all() if kind.runs > 1]
