"""The error that a broken-off transfer hides: of a function that stays a call (one with a check in it, say).

Such a function ends all transfers of its step before the call itself fails, and what waits for one may fail first. So the call is
made once more, where making it changes nothing, and what it says then is what the step says. It must not know what a strategy is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import errors

from stepd.hook.engine import calls, capi, names, op_defs, rules
from stepd.hook.engine.graphview import GraphView, Node
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.log import logger as log
from stepd.hook.order.steps import executed

if TYPE_CHECKING:
    from stepd.hook.engine.copies import Copy
    from stepd.hook.engine.session_engine import SessionEngine

_LOCK_SECONDS = 1.0  # the run is still in flight: who holds the lock may be waiting for it
_INSIDE = re.compile(r"\{\{node ([^{}]+)\}\}\]\]$")
_HARMLESS = calls.CHECKING | {"ReadVariableOp", "VariableShape"}


def tell(engine: SessionEngine, kind: Kind, route: Route, feeds: Mapping[Any, Any], error: BaseException) -> None:
    """Have the `error` of a run of `kind` say what the function says that ended it. `feeds`: the user's TF_Output -> value."""
    if not isinstance(error, errors.CancelledError) or engine.closed or not names.is_broken_off(str(error.message)):
        return
    fed = {route.feeds[tensor]: value for tensor, value in feeds.items()}
    for name, operation in _calls(engine, kind):
        try:
            capi.run_own(engine.raw, fed, [], [operation])
        except errors.CancelledError:
            return
        except errors.OpError as e:
            become(error, e)
            # By itself a call may be inlined, and the error does not say who called.
            if (who := f"\n\t [[{name}]]") not in e.message:
                names.set_text(error, e.message + who)
            return
        except Exception as e:
            log.debug("what ended a step is not known: %s", e)
            return


def become(error: BaseException, other: errors.OpError) -> None:
    """Have an error be another one."""
    error.__class__ = type(other)
    error.__dict__.update(other.__dict__)
    error.args = other.args


def name_caller(engine: SessionEngine, kind: Kind, error: BaseException) -> None:
    """Have the `error` of a run of `kind` say last who called the function that it tells of, where it is told by who waited for it
    alone."""
    found = _INSIDE.search(str(error.message)) if isinstance(error, errors.OpError) else None
    for view, _ in seen(engine, kind) if found is not None else ():
        run = executed(view, kind.step)
        callers = [name for name in view.nodes if name in run and _has(view, view.nodes[name], found[1])]
        if found[1] not in view.nodes and len(callers) == 1 and _is_read(view, callers[0], run):
            names.set_text(error, f"{error.message}\n\t [[{callers[0]}]]")


def _is_read(view: GraphView, name: str, run: Collection[str]) -> bool:
    """Does another op of a step take what this makes?"""
    readers = [view.nodes[user] for user in view.consumers[name] if user in run]
    return any(source == name and index >= 0 for reader in readers for source, index in reader.inputs)


def _has(view: GraphView, node: Node, inner: str) -> bool:
    """Does the op call a function, that stays a call, with an op named `inner` in it?"""
    bodies = [view.functions[name] for name in op_defs.called(node.proto) if name in view.functions]
    stays = calls.runs_as_one(node.proto) or any(map(calls.is_kept, bodies))
    checks = node.op in rules.INLINED and calls.has_checks(view, node)  # conditions, loops and Defuns are put inline with theirs
    return (stays or checks) and any(each.name == inner for body in bodies for each in body.node_def)


def _calls(engine: SessionEngine, kind: Kind) -> list[tuple[str, Any]]:
    """The names, and the mirror's ops, of the calls in a step of `kind` that may be made once more."""
    return [
        (name, serving.ops.operation_of(name))
        for view, serving in seen(engine, kind)
        for name in _again(view, executed(view, kind.step))
    ]


def seen(engine: SessionEngine, kind: Kind) -> Iterator[tuple[GraphView, Copy]]:
    """The graph, and the copy that runs of `kind` are on, while the lock is held; nothing where it cannot be had."""
    switcher = engine.routing.known_switcher()
    if switcher is None or not engine.lock.acquire(timeout=_LOCK_SECONDS):
        return
    try:
        if switcher.live is not None:
            view = switcher.view()
            yield view, switcher.live.serving(kind, view)
    finally:
        engine.lock.release()


def _again(view: GraphView, run: frozenset[str]) -> Iterator[str]:
    """Calls that stay calls, among the ops `run`, that only compute, of what is only computed, read or fed."""
    for name in view.nodes:
        if name not in run or not calls.may_fail_apart(view, view.nodes[name]):
            continue
        needed = [view.nodes[each] for each in view.ancestors([name]) if each in run]
        if all(_is_harmless(view, node) for node in needed):
            yield name


def _is_harmless(view: GraphView, node: Node) -> bool:
    return node.op in rules.VARIABLES or calls.only_computes(view, node, _HARMLESS)
