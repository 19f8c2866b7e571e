"""A moment in which nothing runs, for a session with queues: runs that are blocked in a full queue are let end.

Elements are taken out for them, first to leave first, while all other runs wait; nothing is broken off. What there is then no room
for is put by the threads of the very runs that were blocked, before their program hears that they are done: each waits for
room as it would have waited plainly. It must not know how state is carried.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors

from stepd.hook import clocks
from stepd.hook.engine import capi, names, queues
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.kinds import Kind, patience, step_kind
from stepd.hook.engine.queue_use import Put, Use, use_of
from stepd.hook.engine.shield import unbroken
from stepd.hook.log import logger as log
from stepd.hook.ports import StepKind

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

_LOOK_SECONDS = 0.002
# So many elements that wait in one run are taken out at most: all else waits for it, about 0.2 ms an element.
_MOST_ELEMENTS = 2000


def any_kind(kind: Kind) -> bool:
    return True


@contextlib.contextmanager
def quiet_moment(engine: SessionEngine, draining: Draining | None, seconds: float) -> Iterator[bool]:
    """Hold runs back, those that fill queues last; yields whether nothing is in flight, within `seconds`."""
    gate = engine.gate
    if draining is None:
        with gate.hold(any_kind, patience(gate.in_flight(any_kind), seconds)) as quiet:
            yield quiet
        return
    rest = [True]  # do those that fill queues go on, for those that wait for an element?

    def held(kind: Kind) -> bool:
        return not (rest and draining.fills(kind))

    with gate.hold(held, patience(gate.in_flight(held), seconds)) as quiet:
        rest.clear()
        gate.parting = draining.parting
        try:
            quiet = quiet and draining.empty(patience(gate.in_flight(any_kind), seconds))
        except BaseException:
            draining.give_back()
            raise
        yield quiet


class Delivery:
    """What the thread of a run that was let end owes to a queue, and the run that pays it: one in flight like any other."""

    def __init__(self, engine: SessionEngine, put: Put, done: bool) -> None:
        """`done`: the run did not fail; one that did may have done so before it put anything."""
        self._engine = engine
        self.put = put
        self.done = done
        self.elements: list[queues.Element] = []
        self.settled = threading.Event()
        self.kind = _Owed(put)

    def deliver(self, options: Any, began: float) -> None:
        """Put the elements as the run would have put them; raises what that run would raise. `began`: when (perf_counter)."""
        unbroken(functools.partial(self._deliver, options, began))

    def _deliver(self, options: Any, began: float) -> None:
        self.settled.wait()
        for part in [self.elements] if self.put.many else [[element] for element in self.elements]:
            self.kind.elements = len(part)
            if part:
                self._put(part, options, began)

    def _put(self, part: list[queues.Element], options: Any, began: float) -> None:
        engine = self._engine
        engine.gate.enter(self.kind)
        done, ops = False, engine.queue_ops
        assert ops is not None
        try:
            with _rest_of_time(options, engine.session_options[1], began) as limited:
                ops.put(self.put.queue, part, limited)
            done = True
        except errors.OpError as e:
            names.set_text(e, str(e._message).replace(ops.own_name(self.put.queue, len(part) > 1), self.put.op))
            raise
        finally:
            owed = engine.gate.leave(self.kind, done)
        if isinstance(owed, Delivery):
            owed._deliver(options, began)


class _Owed(Kind):
    """The step of a delivery: of none of the program's kinds."""

    __slots__ = ("elements", "put")

    def __init__(self, put: Put) -> None:
        super().__init__(step_kind([], [], [put.op]), ((), (), ()))
        self.put = put
        self.elements = 0


class Draining:
    """Ends the runs in flight of one session. Used by the thread that restarts it; `parting` and `fills` by any."""

    def __init__(self, engine: SessionEngine, ops: queues.Ops, view: GraphView) -> None:
        self._engine = engine
        self._ops = ops
        self._view = view
        self._uses: dict[StepKind, Use] = {}
        self._stand_ins = queues.one_of_each(view, [node.name for node in view.nodes.values() if queues.carriable(node)])
        for kind in engine.kinds.all():
            self._use(kind)
        # What was taken out of each queue, first to leave first.
        self.taken: dict[str, list[queues.Element]] = {}
        self._deliveries: dict[str, list[Delivery]] = {}

    def _use(self, kind: Kind) -> Use:
        if isinstance(kind, _Owed):
            return Use({}, frozenset({kind.put.queue}), kind.put, ends=True)
        if kind.step not in self._uses:
            self._uses[kind.step] = use_of(self._view, kind.step, self._stand_ins)
        return self._uses[kind.step]

    def fills(self, kind: Kind) -> bool:
        """Does a kind fill queues, as far as is known?"""
        if isinstance(kind, _Owed):
            return True
        use = self._uses.get(kind.step)
        return use is not None and bool(use.fills)

    def parting(self, kind: Kind, done: bool) -> Delivery | None:
        """What a run that ends now has to do for what was taken out; called with the gate's lock held."""
        known = isinstance(kind, _Owed) or kind.step in self._uses
        put = self._use(kind).put if known else None
        if put is None or put.queue not in self.taken or (isinstance(kind, _Owed) and not done):
            return None
        self._deliveries.setdefault(put.queue, []).append(Delivery(self._engine, put, done))
        return self._deliveries[put.queue][-1]

    def empty(self, seconds: float) -> bool:
        """While runs are held back: have those in flight end; False, and nothing was touched, when they may not within `seconds`.

        Those that are let end do so in a time of their own: nothing that they wait for is held back.
        """
        deadline = clocks.monotonic() + seconds
        while counts := self._engine.gate.counts():
            if self.taken or self._end_when_let(counts):
                self._make_room(counts)
            elif clocks.monotonic() > deadline:
                return False
            self._engine.gate.wait_quiet(any_kind, _LOOK_SECONDS)
        return True

    def _end_when_let(self, counts: Mapping[Kind, int]) -> bool:
        """Will all runs in flight end once there is room in the queues that they fill?"""
        known = set(self._engine.kinds.all())
        uses = [(self._use(kind), count) for kind, count in counts.items()]
        if any(kind.in_parts or not (isinstance(kind, _Owed) or kind in known) for kind in counts) or not all(
            use.ends for use, _ in uses
        ):
            return False
        wanted: dict[str, int] = {}
        filled: dict[str, list[tuple[Put, int]]] = {}
        for use, count in uses:
            for queue, elements in use.takes.items():
                wanted[queue] = wanted.get(queue, 0) + elements * count
            if use.put is not None:
                filled.setdefault(use.put.queue, []).append((use.put, count))
        # With several blocked runs it is not known whose an element is: then each must be good for one.
        mixed = any(sum(n for _, n in puts) > 1 and any(put.many for put, _ in puts) for puts in filled.values())
        few = all(self._elements(kind) <= _MOST_ELEMENTS for kind in counts)
        if mixed or not few or not (wanted.keys() | filled.keys()) <= set(self._ops.queues):
            return False
        first_in_first_out = all(self._ops.types[queue] in queues.CARRIED for queue in filled)
        enough = all(self._ops.size(queue) >= elements for queue, elements in wanted.items())
        return first_in_first_out and enough and _in_turn(uses) and not any(map(self._ops.is_closed, filled))

    def _elements(self, kind: Kind) -> int:
        """How many elements a run puts, at most; by the static shape of the first component, where it puts many."""
        put = self._use(kind).put
        if isinstance(kind, _Owed) or put is None or not put.many:
            return kind.elements if isinstance(kind, _Owed) else 1
        name, index = put.first
        shape = self._engine.mirror.user_graph.get_operation_by_name(name).outputs[index].shape
        sizes = shape.as_list() if shape.rank else [None]  # not items: they may be objects
        return int(sizes[0]) if sizes[0] is not None else _MOST_ELEMENTS + 1

    def _make_room(self, counts: Mapping[Kind, int]) -> None:
        """Take an element out of each full queue that a run in flight fills, and none empties: of others the first is theirs."""
        uses = [self._use(kind) for kind in counts]
        emptied = {queue for use in uses for queue in use.takes}
        for queue in {use.put.queue for use in uses if use.put is not None} - emptied:
            while self._ops.size(queue) >= self._ops.capacity[queue]:
                self.taken.setdefault(queue, []).append(self._ops.take(queue))

    def give_back(self) -> None:
        """The old session goes on: all that was taken out is put back where it was."""
        beyond: dict[str, list[queues.Element]] = {}
        try:
            beyond = self._ops.give_back(self.taken) if self.taken else {}
        except Exception:  # the session goes on with the others, and the program's error, if one is under way, stays the first
            kept = ", ".join(f"{len(elements)} of {queue}" for queue, elements in self.taken.items())
            log.exception("session %s: elements of queues could not be put back: %s", self._engine.session_id, kept)
        self.settle(beyond, self._ops)

    def settle(self, beyond: Mapping[str, list[queues.Element]], ops: queues.Ops) -> None:
        """Which thread has to deliver which of the elements that there was no room for: the last runs put the last elements.

        `ops`: those of the session that goes on.
        """
        self._engine.queue_ops = ops
        for queue, deliveries in self._deliveries.items():
            elements = beyond.get(queue, [])
            done = [delivery for delivery in deliveries if delivery.done]
            owing = done if len(elements) <= len(done) else deliveries  # some put theirs before they failed
            for k, element in enumerate(elements):
                owing[max(0, len(owing) - len(elements) + k)].elements.append(element)
            for delivery in deliveries:
                delivery.settled.set()
        self._deliveries, self.taken = {}, {}


def _in_turn(uses: list[tuple[Use, int]]) -> bool:
    """Can the runs end one after the other, each when nobody in flight empties the queue that it fills?"""
    left = [use for use, _ in uses]
    while left:
        emptied = {queue for use in left for queue in use.takes}
        waiting = [use for use in left if use.put is not None and use.put.queue in emptied]
        if len(waiting) == len(left):
            return False
        left = waiting
    return True


@contextlib.contextmanager
def _rest_of_time(options: Any, config: Any, began: float) -> Iterator[Any]:
    """The options of a run, with what is left of its time limit."""
    proto = config_pb2.RunOptions.FromString(capi.buffer_bytes(options)) if options is not None else config_pb2.RunOptions()
    limit = proto.timeout_in_ms or (config.operation_timeout_in_ms if config is not None else 0)
    if limit <= 0:
        yield None
        return
    rest = config_pb2.RunOptions(timeout_in_ms=max(1, limit - int(1000 * (clocks.perf_counter() - began))))
    with capi.buffer(rest.SerializeToString()) as made:
        yield made
