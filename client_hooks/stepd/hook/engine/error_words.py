"""What an error of a session says on its way to the program: what it would say plainly. It must not know how steps are routed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from tensorflow.python.framework import errors

from stepd.hook.engine import capi, containers, graphview, names, op_defs, session_config, worker_words
from stepd.hook.engine.home import home
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.engine.resource_numbers import NUMBERS
from stepd.hook.ports import StepKind

if TYPE_CHECKING:
    from stepd.hook.engine.session_engine import SessionEngine

# Ops that wait for other steps, by how their types begin, and what they call it.
_WAITING = {
    "QueueDequeue": "Dequeue",
    "BarrierTakeMany": "Dequeue",
    "QueueEnqueue": "Enqueue",
    **dict.fromkeys(("AccumulatorTakeGradient", "ResourceAccumulatorTakeGradient", "SparseAccumulatorTakeGradient"), "TakeGrad"),
}
# The end of a step that takes what is fetched, in an error: op, output, number. And of one whose branch is not taken: number.
_END = re.compile(r"(?<=\{\{node _retval_)(\S+)_(\d+)_\d+(?=\}\})")
_DEAD_END = re.compile(r"(?<=Retval\[)\d+(?=\] does not have value)")


# What says where an error came about, and of what it lies in, each with what lies in memory there if the step is traced.
_USAGE = r"(?:\n*\nCurrent usage from device: [^\n]*(?:\n  [^\n]*)*)*"
_FROM = re.compile(r"\n\t \[\[[^\n]*\]\]")
_WAY = re.compile(rf"(?:\n\t \[\[[^\n]*\]\]{_USAGE}\n*)+\Z")
_HINT = (
    "\nHint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom to RunOptions "
    "for current allocation info. This isn't available when running in Eager mode.\n"
)


def tell_untraced(error: BaseException) -> None:
    """Have an error say what it would say had the step not been traced: where memory does not suffice, how to find out what lies in
    it, and not what does."""
    told = getattr(error, "_message", None)
    if isinstance(error, errors.ResourceExhaustedError) and isinstance(told, str) and (way := _WAY.search(told)):
        parts = (part[0] + _HINT for part in _FROM.finditer(way[0]))
        names.set_text(error, told[: way.start()] + "".join(parts))


def repair(engine: SessionEngine, error: BaseException) -> None:
    """Have an error say of executors, devices, queues and containers what it would say plainly."""
    told = getattr(error, "_message", None)
    if not isinstance(told, str):
        return
    text = session_config.without_added(names.without_executor(told), engine.added_devices)
    text = NUMBERS.plain_text(text, engine.mirror.user_graph)
    if engine.cluster is not None:
        config = engine.plain_config
        text = worker_words.of_one_task(text, 0 if config is None else config.device_count.get("CPU", 0))
    switcher = engine.routing.known_switcher()
    # On a server that is not the hook's own nothing with a container is ever moved.
    if containers.are_missing(text) and not engine.target and switcher is not None:
        with engine.lock:
            view, devices = switcher.view(), switcher.devices
            place = partial(home, view, devices)
            known = containers.existing(view, engine.kinds.history(), place)
        text = containers.repair(text, known, containers.places(view, place))
    if text != told:
        names.set_text(error, text)


def reader(engine: SessionEngine, kind: Kind, called: bool, variable: str) -> str:
    """The op of a step of `kind` that takes a reference variable's value as it is, the first in the graph, or the run's own end
    where the step fetches that. "" if there is none. `called`: as for `number_ends`."""
    step, ends = kind.step, _ends(kind, called)
    if f"{variable}:0" in ends:
        return f"_retval_{variable}_0_{ends.index(f'{variable}:0')}"
    graph = engine.mirror.user_graph
    needed = {op.name for op in _needed(graph, step)}
    if variable not in needed:  # but of a function
        return ""
    taking = needed & {op.name for tensor in graph.get_operation_by_name(variable).outputs for op in tensor.consumers()}
    return next((op.name for op in graph.get_operations() if op.name in taking and _reads(op, variable)), "")


def number_ends(error: BaseException, kind: Kind, route: Route | None, called: bool, by_callable: bool) -> None:
    """Number the ends of a step that `error` names as plainly. `called`: was it the run of a callable, whose fetches are numbered
    as they are given? Those of other runs are by the order of their names, of which some are others on a copy. `by_callable`: did
    it run so, too?"""
    text = getattr(error, "_message", None)
    if not isinstance(text, str) or "etval" not in text or not kind.fetches:
        return
    ends = _ends(kind, called)
    there = kind.fetches if route is None else route.fetches
    here = [(capi.output_name(mine), capi.output_name(user)) for user, mine in zip(kind.fetches, there, strict=True)]
    if not by_callable:
        here.sort()

    def taking(found: re.Match[str]) -> str:
        output = f"{found[1]}:{found[2]}"
        return f"{found[1]}_{found[2]}_{ends.index(output)}" if output in ends else found[0]

    def dead(found: re.Match[str]) -> str:
        number = int(found[0])  # perhaps of another session's step, which an error quotes
        return str(ends.index(here[number][1])) if number < len(here) else found[0]

    names.set_text(error, _END.sub(taking, _DEAD_END.sub(dead, text)))


def number_bodies(engine: SessionEngine, error: BaseException, kind: Kind) -> None:
    """Give the bodies that an `error` of a step of `kind` names plain numbers, in a session whose graph has others."""
    text = getattr(error, "_message", None)
    if isinstance(text, str) and "/_" in text and engine.routing.known_switcher() is not None:
        size = kind.size or engine.mirror.taken
        names.set_text(error, engine.body_numbers.plain_text(text, engine.mirror.user_graph, size))


def _ends(kind: Kind, called: bool) -> list[str]:
    """What a step of `kind` fetches, in the order in which its ends are numbered."""
    fetched = [capi.output_name(tensor) for tensor in kind.fetches]
    return fetched if called and fetched else sorted(kind.step.fetches)


def waits(engine: SessionEngine, kind: Kind) -> str:
    """What a step of `kind` says when it is broken off by a closed session while it waits, which a transfer between devices may say
    first: of the only op in it that can wait. "" if there is none, or several."""
    needed = _needed(engine.mirror.user_graph, kind.step)
    waiting = [(op.name, verb) for op in needed for prefix, verb in _WAITING.items() if op.type.startswith(prefix)]
    if len(waiting) != 1:
        return ""
    ((name, verb),) = waiting
    return f"{verb} operation was cancelled\n\t [[{{{{node {name}}}}}]]"


def _needed(graph: Any, step: StepKind) -> Iterator[Any]:
    """The ops of a `step` on `graph`, but for what is fed."""
    seen = {graphview.split_input(name)[0] for name in step.feeds}
    stack = [graph.get_operation_by_name(graphview.split_input(end)[0]) for end in (*step.fetches, *step.targets)]
    while stack:
        op = stack.pop()
        if op.name not in seen:
            seen.add(op.name)
            yield op
            stack += [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def _reads(op: Any, variable: str) -> bool:
    """Does `op` take the value of `variable`, and not a reference?"""
    types = op_defs.input_types(op.node_def)
    return any(tensor.op.name == variable and not op_defs.is_ref(dtype) for tensor, dtype in zip(op.inputs, types, strict=False))
