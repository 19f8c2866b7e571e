"""Which updates of a step come before an op that is there to fail: the end of data, or a check. Pure.

Where an op fails plainly, all that does not need it runs to its end: the step that trains on one batch and asks for the next one
trains at the end of the data, too. On several devices the error ends the transfers, and what waits for one is lost. A copy
therefore gets control edges from such updates to what may fail. Any op may fail of what it is given; these are there for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from stepd.hook.engine import calls, rules
from stepd.hook.engine.before import Before
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.op_defs import function_attrs, holds_state, is_pure
from stepd.hook.engine.races import is_write, races
from stepd.hook.order.conditions import Conditions, conditions
from stepd.hook.order.rounds import may_need
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind

_FAILING = rules.CHECKS | {
    "IteratorGetNext", "IteratorGetNextSync", "PyFunc", "EagerPyFunc", "PyFuncStateless",
    "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2",
}  # fmt: skip
_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless", "Print", "PrintV2"})
# Beside writes of variables; none of them waits for anybody.
_UPDATES = frozenset({
    "RngReadAndSkip", "RngSkip", "LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2", "WriteFile",
    "AccumulatorApplyGradient", "SparseAccumulatorApplyGradient", "ResourceAccumulatorApplyGradient",
})  # fmt: skip
# Stateful, but who comes first does not show.
_DRAWS = (
    "Random", "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal", "StatefulUniform", "StatefulStandardNormal",
    "StatefulTruncatedNormal", "StatefulRandom",
)  # fmt: skip
_MOST = 10_000  # pairs that a step is looked at for


def updates_first(view: GraphView, step: StepKind) -> frozenset[tuple[str, str]]:
    """(update, op that may fail) of a step: the first before the second. Neither needs the other."""
    run = executed(view, step)
    failing = [name for name in run if any(op in _FAILING for op in _ops(view, name))]
    updates = [name for name in run if _is_update(view, name) and not _is_small(view, run, name)] if failing else []
    if not updates or len(updates) * len(failing) > _MOST:
        return frozenset()
    order = sorted_by_needs(may_need(view, run))
    if order is None:
        return frozenset()
    racing = [(race.reader, race.writer) for race in races(view, step, every=True)]
    meeting = [name for name in run if _meets(view.nodes[name].op) and not _is_handle(view, name)]
    ends = [*failing, *updates, *meeting, *(name for race in racing for name in race)]
    before = Before(view, run, {split_input(name) for name in step.feeds}, dict.fromkeys(ends))
    held = conditions(view, order)
    needed = {update: {name for name in meeting if name != update and before.is_before(name, update)} for update in updates}
    pairs = set()
    for end in failing:
        earlier = {name for name in meeting if before.is_before(name, end)}
        if not _may_come_late(view, before, end, meeting, earlier):
            continue
        # The order of a read and a write stays what it plainly is.
        late = [other for race in racing for one, other in (race, race[::-1]) if _until(before, end, one)]
        pairs |= {
            (update, end)
            for update in updates
            if not (_until(before, update, end) or _until(before, end, update))
            and _implies(held, end, update)
            # Whoever waits in a queue, say, may wait for what others do who wait for this.
            and needed[update] <= earlier
            and not any(_until(before, other, update) for other in late)
        }
    return frozenset(_least(before, pairs))


def _until(before: Before, one: str, other: str) -> bool:
    return one == other or before.is_before(one, other)


def _may_come_late(view: GraphView, before: Before, end: str, meeting: Collection[str], earlier: Collection[str]) -> bool:
    """May what fails wait, and nobody can tell but by the error? What comes after it would come after these then that meet others
    in the same and come beside it."""
    later = [name for name in meeting if _until(before, end, name)]
    beside = [name for name in meeting if name not in later and name not in earlier]
    met = {each for name in later for each in _met(view, name)}
    return met.isdisjoint(each for name in beside for each in _met(view, name))


def _least(before: Before, pairs: Collection[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Those of `pairs` that no order among others of them and the graph's makes."""
    ends_of: dict[str, set[str]] = {}
    for update, end in pairs:
        ends_of.setdefault(update, set()).add(end)
    ends = {end for _, end in pairs}
    sooner = {end: {other for other in ends if other != end and before.is_before(other, end)} for end in ends}
    for update, mine in ends_of.items():
        later = set[str]().union(*(ends_of[other] for other in ends_of if other != update and before.is_before(update, other)))
        for end in mine:
            if end not in later and sooner[end].isdisjoint(later) and sooner[end].isdisjoint(mine):
                yield update, end


def _implies(held: Mapping[str, Conditions | None], end: str, write: str) -> bool:
    """Is it sure that the write is alive where the end is?"""
    least, most = held[write], held[end]
    return least is not None and most is not None and least <= most


def _ops(view: GraphView, name: str) -> list[str]:
    """The type of an op, and those of all that the functions have in them that it calls."""
    op = view.nodes[name].op
    if function_attrs(op) == () or "Dataset" in op:
        return [op]
    return [op, *(str(inner.op) for body in view.bodies(view.nodes[name].proto) for inner in body.node_def)]


def may_wait(view: GraphView, name: str) -> bool:
    """May an op, or a function that it calls, wait for what another step or thread does, or end when its step is cancelled?"""
    op, *inner = _ops(view, name)
    if inner and (op not in rules.INLINED or calls.may_fail_apart(view, view.nodes[name])):
        return True
    known = _UPDATES | _PYTHON | rules.CHECKS
    return any(_meets(each) and each not in known and function_attrs(each) == () for each in (inner or [op]))


def _is_update(view: GraphView, name: str) -> bool:
    """Does an op, or a function that it calls, write? Of functions those that wait for nobody."""
    op, *inner = _ops(view, name)
    writes = any(_writes(each) for each in (op, *inner))
    return writes and (not inner or not any(_meets(each) and each not in _UPDATES and function_attrs(each) == () for each in inner))


def _writes(op: str) -> bool:
    return op in _UPDATES or (is_write(op) and rules.works_on_variable(op))


def _meets(op: str) -> bool:
    """Does an op of this type meet others in something else than variables, and in what order shows? It may wait for them."""
    if op in rules.VARIABLES or rules.works_on_variable(op) or op in rules.CONTROL_FLOW or op == "NoOp":
        return False
    return op in rules.CHECKS or (not is_pure(op) and not op.startswith((*_DRAWS, *rules.PER_RUN_PREFIXES)))


def _is_handle(view: GraphView, name: str) -> bool:
    """Is the op there to give a handle, for which it waits for nobody?"""
    outputs = view.outputs(name)
    return not view.nodes[name].inputs and bool(outputs) and all(map(holds_state, outputs))


def _met(view: GraphView, name: str) -> set[str]:
    """What an op meets others in: a queue, a table, an iterator, or Python and what it prints ("")."""
    node = view.nodes[name]
    given = [(source, index) for source, index in node.inputs if index >= 0]
    op, *inner = _ops(view, name)
    if op in rules.CHECKS:
        return {name}
    if not inner:
        return {given[0][0] if given and op not in _PYTHON else ""}
    handles = {source for source, index in given if holds_state(view.outputs(source)[index])}
    return handles | ({""} if any(each in _PYTHON for each in inner) else set())


def _is_small(view: GraphView, run: Collection[str], write: str) -> bool:
    """Does the write need nothing but the variable and constants? It is done at once."""
    seen, stack = {write}, [write]
    while stack:
        name = stack.pop()
        op = view.nodes[name].op
        if name != write and op not in rules.VARIABLES and op not in ("Const", "Identity", "ReadVariableOp", "NoOp"):
            return False
        for source, _ in view.nodes[name].inputs:
            if source in run and source not in seen:
                seen.add(source)
                stack.append(source)
    return True
