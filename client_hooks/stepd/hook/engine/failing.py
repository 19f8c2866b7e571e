"""Which updates of a step come before an op that is there to fail: the end of data, or a check. Pure.

Where an op fails plainly, all that does not need it runs to its end: the step that trains on one batch and asks for the next one
trains at the end of the data, too. On several devices the error ends the transfers, and what waits for one is lost. A copy
therefore gets control edges from such updates to what may fail. Any op may fail of what it is given; these are there for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from stepd.hook.engine import calls, rules
from stepd.hook.engine.before import Before
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.op_defs import is_pure
from stepd.hook.engine.races import is_write, races
from stepd.hook.order.conditions import Conditions, conditions
from stepd.hook.order.rounds import may_need
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind

_DATA = frozenset({
    "IteratorGetNext", "IteratorGetNextSync", "PyFunc", "EagerPyFunc", "QueueDequeueV2", "QueueDequeueManyV2", "QueueDequeueUpToV2",
})  # fmt: skip
_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless", "Print", "PrintV2"})
# Stateful, but who comes first does not show.
_DRAWS = (
    "Random", "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal", "StatefulUniform", "StatefulStandardNormal",
    "StatefulTruncatedNormal", "StatefulRandom",
)  # fmt: skip
_MOST = 2000  # pairs that a step is looked at for


def updates_first(view: GraphView, step: StepKind) -> frozenset[tuple[str, str]]:
    """(update, op that may fail) of a step: the first before the second. Neither needs the other."""
    run = executed(view, step)
    failing = [name for name in run if view.nodes[name].op in rules.CHECKS | _DATA or calls.has_checks(view, view.nodes[name])]
    updates = [name for name in run if _is_update(view.nodes[name].op) and not _is_small(view, run, name)] if failing else []
    if not updates or len(updates) * len(failing) > _MOST:
        return frozenset()
    order = sorted_by_needs(may_need(view, run))
    if order is None:
        return frozenset()
    racing = races(view, step, every=True)
    meeting = [name for name in run if _meets(view.nodes[name].op)]
    ends = [*failing, *updates, *meeting, *(name for race in racing for name in (race.reader, race.writer))]
    before = Before(view, run, {split_input(name) for name in step.feeds}, dict.fromkeys(ends))
    held = conditions(view, order)

    def until(one: str, other: str) -> bool:
        return one == other or before.is_before(one, other)

    def may_wait(end: str, update: str) -> bool:
        """May what fails wait for the update, and nobody can tell but by the error?"""
        if until(update, end) or until(end, update) or not _implies(held, end, update):
            return False
        # Whoever waits in a queue, say, may wait for what others do who wait for this.
        if not all(before.is_before(name, end) for name in meeting if before.is_before(name, update)):
            return False
        for race in racing:  # the order of a read and a write stays what it plainly is
            for one, other in ((race.reader, race.writer), (race.writer, race.reader)):
                if until(end, one) and until(other, update):
                    return False
        later = [name for name in meeting if until(end, name)]
        earlier = [name for name in meeting if name not in later and not before.is_before(name, end)]
        return {_met(view, name) for name in later}.isdisjoint(_met(view, name) for name in earlier)

    pairs = {(update, end) for end in failing for update in updates if may_wait(end, update)}
    return frozenset(pair for pair in pairs if not _follows(before, pair, pairs))


def _follows(before: Before, pair: tuple[str, str], pairs: Collection[tuple[str, str]]) -> bool:
    """Does an order among others of `pairs` and the graph's make the one of `pair`?"""
    write, end = pair
    return any(
        (other == write or before.is_before(write, other)) and (last == end or before.is_before(last, end))
        for other, last in pairs
        if (other, last) != pair
    )


def _implies(held: Mapping[str, Conditions | None], end: str, write: str) -> bool:
    """Is it sure that the write is alive where the end is?"""
    least, most = held[write], held[end]
    return least is not None and most is not None and least <= most


def _is_update(op: str) -> bool:
    return is_write(op) and rules.works_on_variable(op)


def _meets(op: str) -> bool:
    """Does an op of this type meet others in something else than variables, and in what order shows? It may wait for them."""
    if op in rules.VARIABLES or rules.works_on_variable(op) or op in rules.CONTROL_FLOW or op == "NoOp":
        return False
    return op in rules.CHECKS or (not is_pure(op) and not op.startswith((*_DRAWS, *rules.PER_RUN_PREFIXES)))


def _met(view: GraphView, name: str) -> str:
    """What an op meets others in: a queue, a table, an iterator, or Python and what it prints."""
    node = view.nodes[name]
    given = [source for source, index in node.inputs if index >= 0]
    if node.op in rules.CHECKS:
        return name
    return given[0] if given and node.op not in _PYTHON else ""


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
