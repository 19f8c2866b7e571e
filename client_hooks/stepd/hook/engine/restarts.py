"""Carries out a restart: a new session beside the old one, with a strategy in it, that takes the state over in a quiet moment.

Whatever takes long is done while the old session serves. When a restart cannot be made, the old session goes on. This also frees
what copies and helpers have left in the graph. It must not decide when a restart is worth it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stepd.hook import clocks
from stepd.hook.engine import capi, names, open_files, queues, surroundings
from stepd.hook.engine.checkpoints import state_dir
from stepd.hook.engine.copies import Copy
from stepd.hook.engine.departing import departing
from stepd.hook.engine.draining import Draining, any_kind, quiet_moment
from stepd.hook.engine.faults import reason
from stepd.hook.engine.gpu_memory import Room, by_gpu
from stepd.hook.engine.home import home
from stepd.hook.engine.kinds import Kind
from stepd.hook.engine.loading import Loading
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.refusals import NotQuietError, SwitchRefusedError
from stepd.hook.engine.replay import Replay
from stepd.hook.engine.resource_numbers import NUMBERS, Names
from stepd.hook.engine.saving import Saving
from stepd.hook.engine.side import Side, StateChangedError
from stepd.hook.engine.state import Inventory, inventory, variable_bytes
from stepd.hook.engine.switcher import Switcher
from stepd.hook.log import logger as log
from stepd.hook.model import LiveStrategy, SwitchOutcome, Way

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

# Preparations that came to nothing because the program changed what is to be carried.
_ATTEMPTS = 3


@dataclass
class Restarted:
    """What a restart came to; `copy` is in force. `quiet`: was it not for want of a quiet moment that it was not made?"""

    outcome: SwitchOutcome
    copy: Copy | None = None
    quiet: bool = True


def restart_now(
    engine: SessionEngine,
    strategy: LiveStrategy | None,
    kinds: Sequence[Kind],
    seconds: float,
    spare: Sequence[Kind] = (),
    once: float = 0.0,
) -> Restarted:
    """Restart with `strategy` (None: the program's own placement) in force, prepared for `kinds`.

    `seconds`: for how long to try for a quiet moment; 0: once, for `once` seconds at most (0: the setting). `spare`: kinds to
    prepare for the program's own placement as well, so that going back costs a normal step.
    """
    id_, rollback = (strategy.id if strategy else ""), strategy is None
    began = clocks.monotonic()
    error, quiet = "", True
    for _ in range(_ATTEMPTS):
        successor = _Successor(engine)
        try:
            successor.prepare(strategy, kinds, spare)
            if seconds:
                engine.calm()
            successor.connect()
            waited = _in_a_quiet_moment(successor, seconds, once or engine.settings.gate_seconds)
            copy = successor.switcher.live
            refused = copy.plan.refused if copy else ()
            prepared = clocks.monotonic() - began - waited
            said = copy.plan.order_said if copy else ""
            return Restarted(SwitchOutcome(id_, Way.RESTART, ok=True, not_honoured=refused, prepare_seconds=prepared,
                             wait_seconds=waited, rollback=rollback, order_in_force=said,
                             splits_in_force=len(copy.plan.splits) if copy else 0), copy)  # fmt: skip
        except StateChangedError as e:
            error = str(e)
        except Exception as e:  # the old session goes on as it was, and whoever asked hears why
            error, quiet = reason(e, engine.session_id, "it was not restarted"), not isinstance(e, NotQuietError)
            break
        finally:
            successor.close()
            del successor
            capi.give_memory_back()
    error = names.user_text(error, engine.routing.user_names())
    return Restarted(SwitchOutcome(id_, Way.RESTART, ok=False, error=error, rollback=rollback), quiet=quiet)


def obstacle(engine: SessionEngine) -> str:
    """Why the session cannot be restarted now; "" when, as far as can be told ahead, it can."""
    with engine.lock:
        return engine.restart_obstacle(inventory(engine.switcher().view(), engine.kinds.history()).obstacles)


def _in_a_quiet_moment(successor: _Successor, seconds: float, most: float) -> float:
    """Try until nothing runs, for short moments of `most` seconds at most; returns for how long runs were held back at last."""
    deadline, pause = clocks.monotonic() + seconds, 0.05
    while True:
        left = max(0.0, deadline - clocks.monotonic())
        try:
            return successor.take_over(left or most)
        except NotQuietError:
            if left <= pause:
                raise
        clocks.sleep(pause)
        pause *= 2


@dataclass
class _Queues:
    """Helpers on the queues of both sessions, and what ends the runs that are blocked in them."""

    old: queues.Ops
    new: queues.Ops
    draining: Draining


class _Successor:
    """The new session until it is the engine's. `close` frees what is not needed any more, whatever became of it."""

    switcher: Switcher

    def __init__(self, engine: SessionEngine) -> None:
        self._engine = engine
        self._raw: Any = None
        self._old: Any = None
        self._saving: Saving | None = None

    def prepare(self, strategy: LiveStrategy | None, kinds: Sequence[Kind], spare: Sequence[Kind]) -> None:
        """Everything that can be done while the old session serves. Raises SwitchRefusedError and what TensorFlow raises."""
        engine = self._engine
        with engine.lock:
            if engine.closed:
                raise SwitchRefusedError("the session is closed")
            if why := engine.left_alone():
                raise SwitchRefusedError(why)
            self._predecessor = engine.raw
            self._before = before = engine.switcher()
            self._view = before.view()
            owned = self._inventory()
            mirror = engine.mirror.compacted(names.is_own)
        self._begin(mirror, before)
        copy = self.switcher.prepare(self._raw, strategy, kinds) if strategy else None
        self.switcher.prepare_own(spare if strategy else kinds)
        self._replay = Replay(self._raw, mirror, self._view)
        self._replay.advance(owned.draws)
        self._replay.advance(self._inventory().draws)  # what went on since goes on: its executors are there then
        self._owned = owned
        self.switcher.live = copy

    def _begin(self, mirror: Mirror, before: Switcher) -> None:
        engine = self._engine
        make = functools.partial(capi.new_session, mirror.graph.handle, *engine.session_options)
        self._raw = engine.registry.fresh(make, capi.delete_session, engine)
        capi.extend_session(self._raw)
        self.switcher = engine.routing.new_switcher(mirror, self._raw)
        self.switcher.sight.see_as(before.sight)

    def connect(self) -> None:
        """Make the helper ops in both sessions. Raises what `prepare` raises, and StateChangedError."""
        with self._engine.lock:
            self._check_unchanged()
            self._connect(self._owned, self._before, self.switcher.live)

    def _connect(self, owned: Inventory, before: Switcher, copy: Copy | None) -> None:
        engine, view = self._engine, self._view
        old = Side(before.ahead, engine.mirror, view, before.new_prefix())
        new = Side(self.switcher.ahead, self.switcher.mirror, view, self.switcher.new_prefix())
        self._saving = saving = Saving(old, owned, before.homes, state_dir(engine.settings))
        self._moved = dict(copy.plan.variables) if copy else {}
        self._room = Room(new, self._gpu_bytes(itertools.chain(*saving.variables)))
        self._loading = Loading(new, owned, saving.variables, saving.checkpoint, self.switcher.homes, self._moved)
        if self._moved:
            self.switcher.homes.build_return(new.ahead, self._moved, set(itertools.chain(*saving.variables)))
        numbered = [*owned.queues, *owned.iterators, *owned.tables] if before.ahead.direct else []  # a worker counts for itself
        self._called = [Names(side, numbered) for side in (old, new)] if numbered else []
        self._queues: _Queues | None = None
        if owned.queues:
            ops = [queues.Ops(s.ahead, s.mirror, view, owned.queues, f"{s.prefix}/queues") for s in (old, new)]
            for one in ops:
                one.build()
            self._queues = _Queues(*ops, Draining(engine, ops[0], view))

    def _gpu_bytes(self, variables: Iterable[str]) -> dict[str, int]:
        """What the new session is to hold on GPUs."""
        view, devices = self._view, self.switcher.devices
        if "GPU" not in devices.types:
            return {}
        nodes = ((name, view.nodes[name]) for name in variables)
        return by_gpu((self._moved.get(name) or home(view, devices, node), variable_bytes(node)) for name, node in nodes)

    def take_over(self, seconds: float) -> float:
        """Have the engine go on in the new session; returns the seconds that runs were held back. Raises NotQuietError."""
        engine, draining = self._engine, self._queues.draining if self._queues else None
        with engine.lock:
            with quiet_moment(engine, draining, seconds) as quiet:
                held = clocks.monotonic()
                if not quiet:
                    raise NotQuietError(f"{_blocked(engine)} does not end, which keeps the session from being restarted")
                try:
                    beyond = self._go_over()
                except BaseException:
                    if draining:
                        draining.give_back()
                    raise
                if self._queues:
                    self._queues.draining.settle(beyond, self._queues.new)
            return clocks.monotonic() - held

    def _go_over(self) -> dict[str, list[queues.Element]]:
        """In a quiet moment: take the state over and be the engine's session. Returns what queues had no room for."""
        self._check_unchanged()
        owned = self._inventory()
        if replace(owned, draws={}) != replace(self._owned, draws={}):
            raise StateChangedError("the program made other state while the restart was prepared")
        beyond = self._move_state(owned)
        self._old = self._engine.replace_session(self._raw, self.switcher)
        self._raw = None
        return beyond

    def _move_state(self, owned: Inventory) -> dict[str, list[queues.Element]]:
        assert self._saving is not None
        self._room.check()
        contents = self._queues.old.contents(self._queues.draining.taken) if self._queues else []
        self._saving.save()
        self._loading.load(self._saving.read)
        self._replay.advance(owned.draws)
        beyond = self._queues.new.fill(contents) if self._queues else {}
        if self._called:
            NUMBERS.made_again(*(called.now() for called in self._called))
        self.switcher.homes.at.update(self._moved)
        return beyond

    def _inventory(self) -> Inventory:
        """What is to be carried now. Raises SwitchRefusedError when it cannot be."""
        owned = inventory(self._view, self._engine.kinds.history())
        found = self._engine.restart_obstacle(owned.obstacles)
        if not found and owned.iterators and (name := open_files.gone()):
            found = f"{name} was removed or replaced, and an iterator that reads it would open it again"
        if not found and owned.iterators:
            found = surroundings.against_opening(self._engine.surroundings, self._view)
        if found:
            raise SwitchRefusedError(found)
        return owned

    def _check_unchanged(self) -> None:
        engine = self._engine
        if engine.closed:
            raise SwitchRefusedError("the session is closed")
        if engine.raw is not self._predecessor or engine.mirror.version != self.switcher.mirror.version:
            raise StateChangedError("the program extended its graph while the restart was prepared")

    def close(self) -> None:
        if self._saving is not None:
            self._saving.checkpoint.remove()
        if self._raw is not None:
            capi.delete_session(self._raw)
            self.switcher.retire()
        if self._old is not None:
            if self._lingers():
                self._leave_behind()
                self._before.retire()
            else:
                with self._engine.in_use:  # what TensorFlow builds in it is built; nobody begins to build in it any more
                    pass
                if self._owned.iterators:
                    departing.run(functools.partial(_delete, self._old, self._before, trim=True))
                else:
                    _delete(self._old, self._before)

    def _lingers(self) -> bool:
        """Would letting go of the old session stop its workers? They delete one session at a time, begin no run meanwhile, and wait
        for the thread that tunes an iterator to wake up: after up to a minute (measured)."""
        return not self._before.ahead.direct and bool(self._owned.iterators)

    def _leave_behind(self) -> None:
        """Keep the old session until the workers end, but not its variables."""
        self._engine.left_behind += 1
        before = self._before
        try:
            before.homes.empty(before.ahead, self._view, self._owned.variables, before.new_prefix())
        except Exception as e:  # no more than memory that is not free
            log.info("session %s: the variables of the session before the restart stay: %s", self._engine.session_id, e)


def _delete(raw: Any, switcher: Switcher, trim: bool = False) -> None:
    capi.delete_session(raw)
    switcher.retire()
    if trim:
        capi.give_memory_back()


def _blocked(engine: SessionEngine) -> str:
    """The run in flight that goes on for longest, in words."""
    kinds = engine.gate.in_flight(any_kind)
    ends = [*kinds[0].step.fetches, *kinds[0].step.targets] if kinds else []
    return f"a run of {', '.join(ends[:2])}{', ...' * (len(ends) > 2)}" if ends else "a run"
