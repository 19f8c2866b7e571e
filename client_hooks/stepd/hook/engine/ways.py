"""Which way a session is switched: in session or by restart, and why. It must not know how either is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepd.hook.engine import rules, state
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.refusals import SwitchRefusedError
from stepd.hook.engine.restarts import obstacle
from stepd.hook.engine.switcher import Switcher
from stepd.hook.model import LiveStrategy, Way

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

# A step that waits for less than this is not worth a restart.
_SHORT_WAIT_SECONDS = 0.2
# What carrying state takes beside the bytes, and the bytes a second (read, assigned and compared; measured on two slow cores).
_CARRY_SECONDS = 0.1
_CARRY_BYTES_PER_SECOND = 500e6
# More state is in memory twice for too long to restart without being told to.
_MOST_BYTES = 256 << 20


@dataclass(frozen=True)
class Chosen:
    """`only`: why the other way is closed when this one fails; "" when it is open."""

    way: Way
    why: str
    only: str = ""


def choose_way(engine: SessionEngine, strategy: LiveStrategy, way: Way) -> Chosen:
    """The way for a strategy that `way` was asked for. Raises SwitchRefusedError, which says why, when none is open."""
    asked = engine.settings.way if way is Way.AUTO else way
    with engine.lock:
        if engine.closed:
            raise SwitchRefusedError("the session is closed")
        switcher = engine.switcher()
        known = strategy.id in switcher.making.kept
    full = "" if known or switcher.making.made < engine.settings.copies else full_text(switcher, engine.settings.copies)
    if asked is Way.RESTART:
        return Chosen(Way.RESTART, "restart was asked for", full)
    if asked is Way.IN_SESSION:
        return Chosen(Way.IN_SESSION, "in session was asked for")
    if known:
        return Chosen(Way.IN_SESSION, "the session has a copy for this strategy")
    if full:
        found = obstacle(engine)
        if found:
            raise SwitchRefusedError(f"{full}, which is not possible: {found}. The session keeps the copies that it has")
        return Chosen(Way.RESTART, "the session was full of copies", full)
    return _by_wait(engine, switcher)


def full_text(switcher: Switcher, most: int) -> str:
    return (
        f"{switcher.making.made} copies of the graph are in the session already (STEPD_MAX_COPIES={most}); "
        "only a restart of the session can free them"
    )


def _by_wait(engine: SessionEngine, switcher: Switcher) -> Chosen:
    """TensorFlow lets no run of a session begin while it builds another: in session a step waits for that."""
    in_session = Chosen(Way.IN_SESSION, "what moves can move inside the session")
    wait = max((_build_wait(kind) for kind in engine.kinds.all() if kind.runs > 1), default=0.0)
    if wait <= _SHORT_WAIT_SECONDS or not switcher.ahead.direct:
        return in_session
    size = _state_bytes(engine, switcher)
    carry = _CARRY_SECONDS + size / _CARRY_BYTES_PER_SECOND
    if carry > wait / 2 or size > _MOST_BYTES:
        return in_session
    found = obstacle(engine)
    if found:
        return Chosen(Way.IN_SESSION, f"{in_session.why}; a restart would make a step wait less, but: {found}")
    return Chosen(Way.RESTART, f"a step waits about {carry:.1f} s for a restart, {wait:.1f} s for a switch in session")


def _state_bytes(engine: SessionEngine, switcher: Switcher) -> int:
    with engine.lock:
        view = switcher.view()
        return sum(state.variable_bytes(node) for node in view.nodes.values() if node.op in rules.VARIABLES)


def can_be_compacted(engine: SessionEngine) -> bool:
    """Is the session full of copies, can it be restarted, and is there little to carry?"""
    with engine.lock:
        if engine.closed or engine.left_alone() or engine.switcher().making.made < engine.settings.copies:
            return False
        switcher = engine.switcher()
    return _state_bytes(engine, switcher) <= _MOST_BYTES and not obstacle(engine)


def _build_wait(kind: Kind) -> float:
    """How long a step would wait for executors like those of this kind: what its first run took longer, less what a step hides."""
    return max(0.0, kind.first_seconds - 2 * kind.seconds)
