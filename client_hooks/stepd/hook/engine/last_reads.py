"""Fetches of reference variables on local workers: the program sees what the step has written to them, as it does plainly.

A direct session hands the variable's memory out when the whole step is over, also where it is fetched through what hands it on
(`tf.identity(v)`, `v.read_value()`, a reshape). A worker sends its value as soon as that op has run, before the step has written.
So such a fetch reads the memory by an op of the hook's own that waits for all that the program asked of the step. It must not know
strategies or when steps are routed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tensorflow.core.framework import graph_pb2

from stepd.hook.engine import capi, names
from stepd.hook.engine.aliases import REFERENCES, memory_of
from stepd.hook.engine.graphview import GraphView, split_input, takers
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.engine.mirror import Mirror
from stepd.hook.engine.op_defs import output_types
from stepd.hook.engine.races import HAND_ON, is_write
from stepd.hook.engine.sums import VIEWS
from stepd.hook.order.conditions import NONE, conditions
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import needs, sorted_by_needs
from stepd.hook.ports import StepKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepd.hook.engine.copies import Copy

_HANDING_ON = HAND_ON | VIEWS


def concerns(mirror: Mirror, kind: Kind) -> bool:
    """May a run of `kind` have fetches that are to be read last? Needs no lock and looks at no more than its fetches."""
    if mirror.placer is None or kind.in_parts:
        return False
    graph = mirror.user_graph
    return any(_may_be_memory(graph.get_operation_by_name(op).outputs[index]) for op, index in map(split_input, kind.step.fetches))


def _may_be_memory(output: Any) -> bool:
    """Is a `tf.Tensor` a reference, or what only hands one on?"""
    seen, left = set(), [output]
    while left:
        output = left.pop()
        if output.dtype._is_ref_dtype:
            return True
        if output.op.name not in seen and output.op.type in _HANDING_ON:
            left += output.op.inputs
        seen.add(output.op.name)
    return False


def read_last(view: GraphView, step: StepKind) -> dict[str, tuple[str, ...]]:
    """Fetches of references' memory that is written with nothing that orders it before them -> the ops that each is to wait for.
    Pure."""
    run = executed(view, step)
    found = [name for name in step.fetches if name not in step.feeds and _is_written(view, run, name)]
    order = sorted_by_needs(needs(view, run)) if found else None
    if order is None:
        return {}
    held = conditions(view, order)
    ends = dict.fromkeys(split_input(name)[0] for name in (*step.fetches, *step.targets))
    always = [op for op in ends if op in run and held[op] == NONE]
    return {name: tuple(op for op in always if op != split_input(name)[0]) for name in found}


def _is_written(view: GraphView, run: frozenset[str], fetch: str) -> bool:
    op = split_input(fetch)[0]
    if op not in run:
        return False
    before = view.ancestors([op])
    memories = (memory_of(view, name) for name in (op, *before) if view.nodes[name].op in REFERENCES)
    of_fetch = [memory for memory in memories if op in memory]
    writers = {user for memory in of_fetch for name in memory for user in takers(view, name) if is_write(view.nodes[user].op)}
    return any(writer in run and writer not in before for writer in writers)


class LastReads:
    """The ops that read last, in one mirror. Every method is called with the session's lock held."""

    def __init__(self, mirror: Mirror, new_prefix: Callable[[], str]) -> None:
        self._mirror = mirror
        self._new_prefix = new_prefix
        self._wanted: dict[tuple[StepKind, int], dict[str, tuple[str, ...]]] = {}
        # By what is read and what is waited for, as outputs and ops of the mirror.
        self._made: dict[tuple[str, tuple[str, ...]], Any] = {}

    def grow(self, kind: Kind, view: GraphView, copy: Copy) -> list[Any]:
        """Make what `kind` needs on `copy`; returns what the session must be extended by."""
        graph = graph_pb2.GraphDef()
        graph.versions.CopyFrom(self._mirror.user_graph.graph_def_versions)
        keys = [key for _, key in self._reads(kind, view, copy) if key not in self._made]
        tensors: dict[tuple[str, int], Any] = {}
        controls: dict[str, Any] = {}
        for fetch, (source, awaited) in self._reads(kind, view, copy):
            if (source, awaited) not in keys:
                continue
            op, index = split_input(fetch)
            here = split_input(source)[0]
            tensors[here, index] = capi.output(copy.ops.operation_of(op), index)
            for name, user in zip(awaited, self._wanted_of(kind, view)[fetch], strict=True):
                controls[name] = copy.ops.operation_of(user)
            node = graph.node.add(name=f"{names.copy_name(op, self._new_prefix())}-last", op="Identity")
            node.input.extend([source, *(f"^{name}" for name in awaited)])
            node.attr["T"].type = output_types(view.nodes[op].proto)[index] % 100  # of what the reference is to
            node.attr["_class"].list.s.append(f"loc:@{here}".encode())
        wanted = [node.name for node in graph.node]
        if not wanted:
            return []
        made = capi.import_graph_def(self._mirror.graph, graph.SerializeToString(), tensors, controls, wanted)
        self._made.update(zip(dict.fromkeys(keys), made, strict=True))
        return list(made)

    def routed(self, kind: Kind, view: GraphView, copy: Copy, route: Route) -> Route:
        """`route` with what `grow` made."""
        made = self._operations(kind, view, copy)
        if not made:
            return route
        outputs = {capi.output_name(fetch): here for fetch, here in zip(kind.fetches, route.fetches, strict=True)}
        outputs.update((fetch, capi.output(operation, 0)) for fetch, operation in made.items())
        return route._replace(fetches=[outputs[capi.output_name(fetch)] for fetch in kind.fetches])

    def names(self, kind: Kind, view: GraphView, copy: Copy) -> Mapping[str, str]:
        """Fetch -> what it is in the mirror, for those that are read last."""
        return {fetch: f"{capi.op_name(operation)}:0" for fetch, operation in self._operations(kind, view, copy).items()}

    def _operations(self, kind: Kind, view: GraphView, copy: Copy) -> dict[str, Any]:
        return {fetch: self._made[key] for fetch, key in self._reads(kind, view, copy) if key in self._made}

    def _reads(self, kind: Kind, view: GraphView, copy: Copy) -> Iterator[tuple[str, tuple[str, tuple[str, ...]]]]:
        """(fetch, its key in `_made`) of what `kind` reads last."""
        for fetch, awaited in self._wanted_of(kind, view).items():
            op, index = split_input(fetch)
            source = f"{copy.ops.name_of(op)}:{index}"
            yield fetch, (source, tuple(copy.ops.name_of(name) for name in awaited))

    def _wanted_of(self, kind: Kind, view: GraphView) -> dict[str, tuple[str, ...]]:
        if not concerns(self._mirror, kind):
            return {}
        key = kind.step, self._mirror.version
        if key not in self._wanted:
            self._wanted[key] = read_last(view, kind.step)
        return self._wanted[key]
