"""Callables made from CallableOptions: they follow switches too. They share the engine's kinds, gate and routes; they decide
nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors

from stepd.hook.collector import pause
from stepd.hook.engine import capi, rules
from stepd.hook.engine.kinds import Kind, Route, step_kind
from stepd.hook.engine.told import Traced

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine


_LIVE = frozenset({"Merge", "RefMerge", "Exit", "RefExit"})  # behind these a branch, or a loop, is over
# So many of a callable's are kept: what is in force, what was, and what is being prepared.
_MOST_KEPT = 3


@dataclass
class _Callable:
    kind: Kind
    options: config_pb2.CallableOptions
    types: tuple[Any, ...] | None  # of what it is fed; None: it is more than a plain run, or asks for something itself
    asks: bytes  # its RunOptions
    raw: Any
    own: Any  # the handle on the user's own nodes; None: of a session that is over
    text: bytes  # what that was made with
    made: dict[bytes, Any] = field(default_factory=dict)  # handles elsewhere, by their options; what was used last comes last
    now: tuple[int, Any, Any] = (-1, None, None)  # (epoch, session, handle) of the last run
    has_run: bool = False
    may_be_dead: bool | None = None  # one of its fetches, in some runs; None: nobody has looked


class _Run:
    """One run of a callable."""

    __slots__ = ("_error", "_handle", "_known", "_metadata", "_raw", "_values", "_whose")

    def __init__(self, whose: Callables, known: _Callable, values: Any, metadata: Any) -> None:
        self._whose, self._known, self._values, self._metadata = whose, known, values, metadata

    def find(self, route: Route | None, epoch: int) -> bool:
        """Note what to run on `route`; before the run passes the gate, behind which nobody may wait for the lock. Is there such?"""
        known, raw = self._known, self._whose.raw()
        self._error: Exception | None = None
        try:
            if route is None and known.raw is raw and known.own is not None:
                known.now = epoch, raw, known.own
            self._raw, self._handle = self._whose.current(known, epoch)
        except Exception as e:  # it is the run's, and told by it
            self._error = e
        return self._error is None

    def call(self, route: Route | None) -> Any:
        if self._error is not None:
            raise self._error
        return capi.run_callable(self._raw, self._handle, self._values, self._metadata)


class Callables:
    """Callables of one session. A program holds the handle of the first; the others follow what is in force."""

    def __init__(self, engine: SessionEngine) -> None:
        self._engine = engine
        self._by_handle: dict[Any, _Callable] = {}
        self._made = 0

    def make(self, options: Any) -> Any:
        proto = config_pb2.CallableOptions.FromString(capi.buffer_bytes(options))
        with self._engine.lock:
            raw = self._engine.raw
            self._engine.ran = True
            text = self._own(proto)
            handle = capi.make_callable(raw, options) if not self._engine.mirror.aliases else _made(raw, text)
            number = self._made
            self._made += 1
            # With the lock held: a restart must find it, since its handle goes with the session.
            self._by_handle[number] = _Callable(*self._kind(proto), proto.run_options.SerializeToString(), raw, handle, text)
        return number

    def _own(self, proto: config_pb2.CallableOptions) -> bytes:
        """What asks for the same of the user's own nodes, of which some have another name in the mirror."""

        def here(name: str) -> str:
            op, colon, index = name.partition(":")
            return self._engine.mirror.name_here(op) + colon + index

        made = _renamed(proto, here, here)
        made.target[:] = [here(name) for name in proto.target]
        return made.SerializeToString(deterministic=True)

    def _graph(self) -> Any:
        return self._engine.mirror.user_graph

    def _kind(self, proto: config_pb2.CallableOptions) -> tuple[Kind, config_pb2.CallableOptions, tuple[Any, ...] | None]:
        """The kind of the plain run that does the same; one of its own where none does."""
        kinds, graph = self._engine.kinds, self._graph()
        names_ = [*proto.feed, *proto.fetch]
        more = proto.tensor_connection or proto.feed_devices or proto.fetch_devices or proto.fetch_skip_sync
        if more or any(len(set(each)) < len(each) for each in (proto.feed, proto.fetch)) or any(":" not in n for n in names_):
            ties = proto.tensor_connection  # one value is fetched, as it were, and the other fed with it
            feeds, fetches = [*proto.feed, *(tie.to_tensor for tie in ties)], [*proto.fetch, *(tie.from_tensor for tie in ties)]
            kind = Kind(step_kind(feeds, fetches, [*proto.target]), ((), (), ()))
            kind.in_parts = bool(proto.tensor_connection)
            kinds.uncertain.add(kind.step)
            return kind, proto, None
        feeds, fetches = ([graph.get_tensor_by_name(name) for name in part] for part in (proto.feed, proto.fetch))
        targets = tuple(graph.get_operation_by_name(name)._c_op for name in proto.target)
        key = (tuple(t._as_tf_output() for t in fetches), targets, tuple(t._as_tf_output() for t in feeds))
        asks = self._engine.told.asks_for_something(proto.run_options)
        return kinds.get(key), proto, None if asks else tuple(t.dtype.as_numpy_dtype for t in feeds)

    def run(self, handle: Any, values: Any, metadata: Any) -> Any:
        """In place of TF_SessionRunCallable."""
        known = self._by_handle.get(handle)
        if known is None:
            given = isinstance(handle, int) and 0 <= handle < self._made
            words = "Attempted to run callable after handle was released" if given else "No such callable handle"
            nothing = "Session was not created with a graph before RunCallable()!"
            raise errors.InvalidArgumentError(None, None, f"{words}: {handle}" if self._engine.has_graph() else nothing)
        known.has_run = True
        if pause.off:
            pause.catch_up()
        kind, runs = known.kind, self._engine.runs
        epoch, raw, made = known.now
        # It is let in on the kind's epoch, which is the session's then.
        if metadata is None and epoch == kind.epoch and (notes := runs.let_in(kind)) is not None:
            if epoch == kind.epoch:
                return runs.noted(kind, notes, lambda _: capi.run_callable(raw, made, values, None), called=True, values=values)
            self._engine.gate.leave(kind)
        one = _Run(self, known, values, metadata)
        traced = self._asked(known, values)
        if traced is None:
            return runs.guarded(kind, one.call, ready=one.find, called=True, values=values)
        fetches, targets = list(kind.fetches), list(kind.targets)
        feeds = dict(zip(kind.feeds, values, strict=True))
        on = functools.partial(runs.run_on, traced.options, feeds, fetches, targets, traced.metadata)
        try:
            return runs.guarded(kind, on, traced.metadata, traced, feeds, traced.options, called=True)
        finally:
            traced.free()

    def _asked(self, known: _Callable, values: Any) -> Traced | None:
        """What to ask of this run, which is made as a plain one then: of a callable a master tells nothing, and a direct session
        only what it was made for."""
        engine, types, kind = self._engine, known.types, known.kind
        if types is None or engine.runs.notes_of(kind) is not None or not engine.builds_alike():
            return None
        # What only an initializer reads counts for steps as read for that; by a callable it is read once for all its runs.
        if engine.mirror.keeps_in_executors:
            return None
        if self._may_be_dead(known):  # a callable returns something empty for what has no value, where a run raises
            return None
        kind.may_be_asked = True
        if len(values) != len(types) or not all(_is(value, type_) for value, type_ in zip(values, types, strict=True)):
            return None
        return engine.told.wants(kind, known.asks)

    def _may_be_dead(self, known: _Callable) -> bool:
        if known.may_be_dead is None:
            mirror = self._engine.mirror
            known.may_be_dead = mirror.has_branches and _may_be_dead(
                [t.op for t in map(self._graph().get_tensor_by_name, known.options.fetch)]
            )
        return known.may_be_dead

    def raw(self) -> Any:
        """The session that runs now."""
        return self._engine.raw

    def session_replaced(self) -> None:
        """The handles went with the session; they are made again when they are used."""
        for known in list(self._by_handle.values()):
            # A later session may lie where the old one lay, and pass for it.
            known.raw, known.own, known.made, known.now = None, None, {}, (-1, None, None)

    def current(self, known: _Callable, epoch: int) -> tuple[Any, Any]:
        """The session and the handle for what is in force; nothing where that is not what was in force at `epoch` any more: what is
        now may not have all that the callable needs."""
        engine, now = self._engine, known.now
        if now[0] == epoch:  # without the lock, which may be held for as long as TensorFlow takes in a copy
            return now[1:]
        with engine.lock:
            if engine.routing.epoch != epoch:
                return None, None
            if known.now[0] != epoch:
                known.raw = engine.raw
                text = self._mapped(known.options, known.kind).SerializeToString(deterministic=True)
                if text == known.text and known.own is not None:  # nothing of it is elsewhere: its executors keep what they have
                    known.now = epoch, engine.raw, known.own
                    return known.now[1:]
                handle = known.made.pop(text, None)
                known.now = epoch, engine.raw, _made(engine.raw, text) if handle is None else handle
                self._keep(known, text, known.now[2])
            return known.now[1:]

    def build_ahead(self, raw: Any, kind: Kind, route: Route) -> None:
        """Make what the callables of `kind` need on `route`, to which the session is about to switch. The caller holds no lock."""
        for known in list(self._by_handle.values()):
            if known.kind is not kind or known.types is None or known.raw is not raw or not known.has_run:
                continue
            options = config_pb2.CallableOptions()
            options.CopyFrom(known.options)
            options.feed[:] = [capi.output_name(route.feeds[t]) for t in kind.feeds]
            options.fetch[:] = [capi.output_name(t) for t in route.fetches]
            options.target[:] = [capi.op_name(op) for op in route.targets]
            text = options.SerializeToString(deterministic=True)
            if text in known.made or (text == known.text and known.own is not None):
                continue
            handle = _made(raw, text)
            with self._engine.lock:
                if known.raw is raw and text not in known.made and known in self._by_handle.values():
                    self._keep(known, text, handle)
                else:
                    capi.release_callable(raw, handle)

    def _keep(self, known: _Callable, text: bytes, handle: Any) -> None:
        known.made[text] = handle
        left = [each for each in known.made if known.made[each] is not known.now[2]]
        for old in left[: max(0, len(known.made) - _MOST_KEPT)]:
            capi.release_callable(self._engine.raw, known.made.pop(old))

    def kinds(self) -> list[Kind]:
        """Those, of none of the session's own kinds, that ran more than once."""
        return [known.kind for known in list(self._by_handle.values()) if known.types is None and known.kind.runs > 1]

    def _mapped(self, options: config_pb2.CallableOptions, kind: Kind) -> config_pb2.CallableOptions:
        routing = self._engine.routing
        here = functools.partial(routing.name_here, kind=kind)
        fetches = dict(zip(options.fetch, routing.fetches_here(options.fetch, kind), strict=True))
        made = _renamed(options, here, lambda name: fetches.get(name, name))
        sums = routing.sums_fetched(options.fetch, kind)
        made.target[:] = [
            *(here(name) for name in (*options.target, *sums)),
            *routing.besides((*options.fetch, *options.target), kind),
        ]
        return made

    def release(self, handle: Any) -> None:
        known = self._by_handle.pop(handle, None)
        with self._engine.lock:
            for made in (known.own, *known.made.values()) if known else ():
                if made is not None:
                    capi.release_callable(self._engine.raw, made)


def _may_be_dead(ends: list[Any]) -> bool:
    """Whether one of these may lie in a branch that is not taken; as far as contexts tell, and the branch it is in itself."""
    if any(_in_a_branch(op._get_control_flow_context()) for op in ends):
        return True
    seen = set(ends)
    for op in ends:  # it grows
        if op.type in rules.SWITCHES:
            return True
        if op.type not in _LIVE:
            more = [source for source in (*(tensor.op for tensor in op.inputs), *op.control_inputs) if source not in seen]
            seen.update(more)
            ends.extend(more)
    return False


def _in_a_branch(context: Any) -> bool:
    while context is not None:
        if context.IsCondContext():
            return True
        context = context.outer_context
    return False


def _renamed(
    options: config_pb2.CallableOptions, here: Callable[[str], str], fetched: Callable[[str], str]
) -> config_pb2.CallableOptions:
    """`options` with the names that `here` gives what is fed and connected, and `fetched` what is fetched; targets as they are."""
    made = config_pb2.CallableOptions()
    made.CopyFrom(options)
    made.feed[:] = [here(name) for name in options.feed]
    made.fetch[:] = [fetched(name) for name in options.fetch]
    for connection in made.tensor_connection:
        connection.from_tensor, connection.to_tensor = here(connection.from_tensor), here(connection.to_tensor)
    made.feed_devices.clear()
    made.feed_devices.update({here(name): device for name, device in options.feed_devices.items()})
    made.fetch_devices.clear()
    made.fetch_devices.update({fetched(name): device for name, device in options.fetch_devices.items()})
    return made


def _made(raw: Any, options: bytes) -> Any:
    with capi.buffer(options) as buffer:
        return capi.make_callable(raw, buffer)


def _is(value: Any, type_: Any) -> bool:
    """Is it an array that needs no conversion on its way?"""
    return isinstance(value, np.ndarray) and value.dtype == type_
