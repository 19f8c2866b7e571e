"""What is built ahead in one raw session, so that a run of it begins at once. It must not know strategies or steps.

A direct session builds and keeps the executors of a run that it is asked for but cannot begin. A master, of local workers or of a
cluster, builds what a callable needs, and registers it with its workers, when the callable is made; the run then goes by the
callable. What plain runs need a master builds when the first one runs, whatever callables there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.framework import errors

from stepd.hook.engine import capi
from stepd.hook.log import logger as log

# What a master says of a callable that is gone; nothing of it has run then.
_RELEASED = "after handle was released"
_ALIGNED = 64  # bytes at whose multiples TensorFlow's memory begins


class Callable:
    """A run of one raw session that its master has built. `handle` None: plain runs serve as well from now on."""

    __slots__ = ("_feeds", "_fetches", "handle")

    def __init__(self, handle: int, feeds: list[str], fetches: list[str]) -> None:
        self.handle: int | None = handle
        self._feeds = feeds
        self._fetches = fetches

    def built(self, feeds: Iterable[Any], fetches: Iterable[Any]) -> Built:
        """For callers that name what they feed and fetch by these TF_Outputs, in this order."""
        by_name = {capi.output_name(t): t for t in feeds}
        places = {name: k for k, name in enumerate(self._fetches)}
        return Built(self, tuple(by_name[name] for name in self._feeds), tuple(places[capi.output_name(t)] for t in fetches))


class Built:
    """How to call for a run that was built: as the plain one, with the same feeds and fetches."""

    __slots__ = ("_callable", "_feeds", "_places")

    def __init__(self, made: Callable, feeds: tuple[Any, ...], places: tuple[int, ...]) -> None:
        self._callable = made
        self._feeds = feeds  # in the order in which the callable takes their values
        self._places = places  # of what is fetched, among what the callable returns

    def run(self, session: Any, feeds: Mapping[Any, Any]) -> list[Any] | None:
        """The values fetched; None when this must run plainly, and nothing has run. Raises what a plain run raises."""
        handle = self._callable.handle
        if handle is None:
            return None
        try:
            values = capi.run_callable(session, handle, tuple(feeds[t] for t in self._feeds), None)
        except errors.InvalidArgumentError as e:
            if _RELEASED not in str(e):
                raise
            return None
        return [values[place] for place in self._places]

    def retire(self) -> None:
        """A plain run has been made: from now on plain runs begin at once, and copy what is fed once less."""
        self._callable.handle = None


class Ahead:
    """Builds in one raw session, and runs what the hook itself has built there."""

    def __init__(self, session: Any, direct: bool, limited: bool) -> None:
        """`limited`: the session's config sets a time limit, which is not meant for the hook's own runs and which no callable is
        without."""
        self.session = session
        self.direct = direct
        self._limited = limited
        # By what is fed, fetched and run. None: it could not be made.
        self._made: dict[tuple[tuple[str, ...], ...], Callable | None] = {}

    def build(self, feeds: Sequence[Any] = (), fetches: Sequence[Any] = (), targets: Sequence[Any] = ()) -> Built | None:
        """Have built what a run needs, without running any of it. Returns how to call for it; None: plainly."""
        if not fetches and not targets:
            return None
        if self.direct:
            capi.build_executors(self.session, feeds, list(fetches), list(targets))
            return None
        names = _names(feeds, fetches, targets)
        if names not in self._made:
            self._made[names] = self._make(*(list(part) for part in names))
        return self._built(names, feeds, fetches)

    def _built(self, names: tuple[tuple[str, ...], ...], feeds: Iterable[Any], fetches: Iterable[Any]) -> Built | None:
        made = self._made.get(names)
        return None if made is None else made.built(feeds, fetches)

    def _make(self, feeds: list[str], fetches: list[str], targets: list[str]) -> Callable | None:
        # Sorted, as the master sorts those of plain runs: it builds the very same graph then.
        options = config_pb2.CallableOptions(feed=feeds, fetch=fetches, target=targets)
        try:
            with capi.buffer(options.SerializeToString()) as serialized:
                return Callable(capi.make_callable(self.session, serialized), feeds, fetches)
        except errors.OpError as e:
            log.info("a run could not be built ahead: %s", e)
            return None

    def run(self, fetches: Sequence[Any] = (), targets: Sequence[Any] = (), feeds: Mapping[Any, Any] | None = None) -> list[Any]:
        """A run of the hook's own, by what was built for it if anything was. Raises TensorFlow's errors."""
        if not fetches and not targets:
            return []
        given = {tensor: aligned(as_fed(value)) for tensor, value in feeds.items()} if feeds else {}
        if self._made and not self._limited:
            built = self._built(_names(list(given), fetches, targets), given, fetches)
            values = None if built is None else built.run(self.session, given)
            if values is not None:
                return values
        return list(capi.run_own(self.session, given, list(fetches), list(targets)))


def as_fed(value: Any) -> Any:
    """What a run returned, as another run takes it: of one string, which comes as bytes, numpy would lose the zeros at its end."""
    return np.array(value, dtype=object) if isinstance(value, bytes) else value


def aligned(value: Any) -> Any:
    """The same array, or one like it, that TensorFlow takes as it is.

    Others it copies, into memory of its own that is not the devices': it may have changed how it counts such memory when that is
    given back, and then the process dies (a session whose config has `build_cost_model` set, after a constant that was computed
    before there was a device). A program that feeds no state would not meet that.
    """
    array = np.asarray(value)
    if array.dtype.kind in "OSU" or not array.nbytes or (array.flags.c_contiguous and array.ctypes.data % _ALIGNED == 0):
        return value
    room = np.empty(array.nbytes + _ALIGNED, np.uint8)
    begin = -room.ctypes.data % _ALIGNED
    made = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _names(feeds: Iterable[Any], fetches: Iterable[Any], targets: Iterable[Any]) -> tuple[tuple[str, ...], ...]:
    return (
        tuple(sorted({capi.output_name(t) for t in feeds})),
        tuple(sorted({capi.output_name(t) for t in fetches})),
        tuple(sorted({capi.op_name(op) for op in targets})),
    )
