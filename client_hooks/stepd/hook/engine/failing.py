"""Which updates of a step come before an op that may fail: the end of data, a check, or a look-up of what is fed. Pure.

Where an op fails plainly, all that does not need it runs to its end: the step that trains on one batch and asks for the next one
trains at the end of the data, too. On several devices the error ends the transfers, and what waits for one is lost. A copy
therefore gets control edges from such updates to what may fail. Any op may fail of what it is given; these are there for it, or
fail of values, where others fail of shapes.
"""

from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from stepd.hook.engine import calls, op_defs, rules
from stepd.hook.engine.before import Before
from stepd.hook.engine.entrances import entered, entrances
from stepd.hook.engine.fallible import FAILING, VALUE, bodies, fallible, is_usual
from stepd.hook.engine.fitting import Shapes, may_not_fit
from stepd.hook.engine.graphview import GraphView, name_of_state, split_input
from stepd.hook.engine.op_defs import function_attrs, holds_state, is_pure
from stepd.hook.engine.races import HAND_ON, is_write, races
from stepd.hook.engine.unsure import LOOK_UPS, Unsure, depths_of, until
from stepd.hook.order.conditions import Conditions, conditions
from stepd.hook.order.rounds import may_need
from stepd.hook.order.steps import executed
from stepd.hook.order.walk import sorted_by_needs
from stepd.hook.ports import StepKind

_PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless", "Print", "PrintV2"})
# Beside writes of variables; none of them waits for anybody.
_UPDATES = frozenset({
    "RngReadAndSkip", "RngSkip", "LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2",
    "AccumulatorApplyGradient", "SparseAccumulatorApplyGradient", "ResourceAccumulatorApplyGradient",
    "AccumulatorSetGlobalStep", "ResourceAccumulatorSetGlobalStep", "ImportEvent", "WriteSummary",
    "WriteScalarSummary", "WriteHistogramSummary", "WriteImageSummary", "WriteAudioSummary", "WriteGraphSummary",
    "WriteRawProtoSummary",
})  # fmt: skip
# What is done once and shows outside: calls of Python and texts, which may wait for others, and files.
_EFFECTS = _PYTHON | {"WriteFile", "Save", "SaveSlices", "SaveV2"}
_OUTSIDE = _EFFECTS | {"Restore", "RestoreSlice", "RestoreV2"}
# Handles that are given something, but for which nobody waits.
_GIVEN_HANDLES = frozenset({"MutableDenseHashTable", "MutableDenseHashTableV2"})
# Stateful, but who comes first does not show.
_DRAWS = (
    "Random", "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal", "StatefulUniform", "StatefulStandardNormal",
    "StatefulTruncatedNormal", "StatefulRandom", "NonDeterministicInts", "SampleDistorted", "CudnnRNN", "AllCandidate",
    "FixedUnigramCandidate", "LogUniformCandidate", "UniformCandidate",
)  # fmt: skip
# Of both generations, and what ends each round of the first.
_LOOPS = frozenset({"LoopCond", "While", "StatelessWhile"})
_ANY = "?"  # something, and it is not known what
_MOST = 10_000  # pairs that a step is looked at for


def updates_first(
    view: GraphView, step: StepKind, home: Callable[[str], str] = lambda _: "", shapes: Shapes = lambda *_: None
) -> frozenset[tuple[str, str]]:
    """(update, op that may fail) of a step: the first before the second. Neither needs the other. `home`: where ops are plainly."""
    run = executed(view, step)
    updates = [name for name in run if _is_update(view, name) and not _is_small(view, run, name)]
    order = sorted_by_needs(may_need(view, run)) if updates else None
    if order is None:
        return frozenset()
    may_fail = fallible(view, step, order, updates, _MOST, shapes)
    if not may_fail.ends:
        return frozenset()
    racing = [(race.reader, race.writer) for race in races(view, step, every=True)]
    orders = [*racing, *((other, one) for one, other in racing if is_write(view.nodes[one].op))]
    meeting = [name for name in run if _meeting(view, name)]
    # What waits for others, or does not go on once an error has cancelled the step.
    ended = [name for name in run if _waits(view, name) or _ends_early(view, name)]
    depths = depths_of(view, order)
    received = _received(view, order, home)
    fed = {split_input(name) for name in step.feeds}
    ends = [*updates, *meeting, *ended, *received, *(name for race in racing for name in race)]
    ends += [*may_fail.ends, *may_fail.unsure, *(other for _, other in may_fail.alike)]
    held = conditions(view, order)
    # In loops of the first generation what is there to fail, looks at values as others do, or may not fit: all of the loop waits.
    doors = entrances(view, order, [end for end in may_fail.ends if is_usual(view, end) or may_not_fit(view, end, shapes)])
    held |= {end: entered(view, held, door) for end, door in doors.items()}
    after = {end: view.descendants([door]) for end, door in doors.items()}
    # What has been done when it runs, whichever branch is taken: the update, or what joins the branches behind it.
    done = {update: [update, *_joins(view, run, held, update)] for update in updates}
    before = Before(view, run, fed, dict.fromkeys(itertools.chain(ends, *done.values())))
    met = {name: _met(view, name) for name in meeting}
    unsure = Unsure(view, order, fed, before, may_fail, depths)
    pairs = set[tuple[str, str]]()
    # An update that may fail itself comes first only where none has to come before it.
    doubtful = set(updates).intersection(may_fail.ends)
    parts = [[name for name in updates if name not in doubtful], [name for name in updates if name in doubtful]]
    for those, end in itertools.product(filter(None, parts), may_fail.ends):
        earlier = {name for name in meeting if before.is_before(name, end)}
        # What `end` is, or would come late with it.
        late_with = after[end].__contains__ if end in after else functools.partial(until, before, end)
        later = set(filter(late_with, met))
        if not _may_come_late(met, earlier, later) or _parts(late_with, orders):
            continue
        # Whoever waits in a queue, say, may wait for what others do who wait for this; and what is heard of stays what it is.
        others = [name for name in ended if not until(before, name, end)] + unsure.hiding(end)
        known = before.mask(others)
        # A transfer that there is plainly, too, ends if it would come later.
        cut = [name for name in received if depths[name] > depths[end]]
        # Python may wait for anybody, but for a check from which nothing comes that others could meet.
        alone = not any(view.nodes[name].op not in rules.CHECKS for name in later)
        # The order of a read and a write stays what it plainly is.
        late = [other for race in racing for one, other in (race, race[::-1]) if late_with(one)]
        pairs |= {
            (last, end)
            for update in those
            for last in [next((name for name in done[update] if _implies(held, end, name) and until(before, update, name)), end)]
            if not (until(before, update, end) or late_with(last))
            and not (before.some(known, last) and any(name != update and before.is_before(name, last) for name in others))
            and not any(until(before, other, last) for other in (*late, *cut))
            and (alone or view.nodes[update].op not in _PYTHON)
            and unsure.may_wait(end, last)
        }
    waiting = [end for end in may_fail.ends if any(end == other for _, other in pairs)]
    # Where the same sizes meet again, in the gradients, say, nothing is to fail sooner; nor what fails of the same plainly later.
    sooner = {(end, other) for end, other in may_fail.alike if end in waiting and not before.is_before(end, other)}
    sooner |= {(end, other) for end in waiting for other in unsure.later(end) if _implies(held, other, end)}
    outside = {(end, other) for end, other in sooner if end not in doors and end not in after.get(other, ())}
    return frozenset((one, doors.get(other, other)) for one, other in outside.union(_least(before, held, pairs)))


def heard_before(view: GraphView, step: StepKind, failed: str, shapes: Shapes) -> list[str]:
    """What of a step may plainly have failed before an op that has `failed`, and is made of nothing but what is fed."""
    run = executed(view, step)
    updates = [name for name in run if _is_update(view, name)]
    order = sorted_by_needs(may_need(view, run)) if updates else None
    if order is None or failed not in run:
        return []
    may_fail, fed = fallible(view, step, order, updates, _MOST, shapes), {split_input(name) for name in step.feeds}
    return Unsure(view, order, fed, Before(view, run, fed, ()), may_fail, depths_of(view, order)).heard_before(failed)


def _received(view: GraphView, order: Iterable[str], home: Callable[[str], str]) -> list[str]:
    """What waits for ops on other devices, plainly."""
    homes = {name: home(name) for name in order}
    if len({*homes.values()}) < 2:
        return []
    return [name for name in order if any(homes.get(source, homes[name]) != homes[name] for source, _ in view.nodes[name].inputs)]


def _parts(late_with: Callable[[str], bool], orders: Iterable[tuple[str, str]]) -> bool:
    """Does the first of one of `orders`, a read mostly, come late, and not the second? That one would come first then."""
    return any(late_with(one) and not late_with(other) for one, other in orders)


def _may_come_late(met: Mapping[str, set[Any]], earlier: Collection[str], later: Collection[str]) -> bool:
    """May what fails wait, and nobody can tell but by the error? What comes `later` with it would come after these then that meet
    others in the same and come beside it.
    """
    own = set[Any]().union(*(met[name] for name in later))
    others = set[Any]().union(*(met[name] for name in met if name not in later and name not in earlier))
    return own.isdisjoint(others) and not (own and others and _ANY in own | others)


def _least(before: Before, held: Mapping[str, Conditions | None], pairs: Collection[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Those of `pairs` that no order among others of them and the graph's makes, whatever is `held` where."""
    ends_of: dict[str, set[str]] = {}
    for update, end in pairs:
        ends_of.setdefault(update, set()).add(end)
    ends = {end for _, end in pairs}
    sooner = {end: {o for o in ends if o != end and before.is_before(o, end) and _implies(held, end, o)} for end in ends}
    for update, mine in ends_of.items():
        later = set[str]().union(*(ends_of[other] for other in ends_of if other != update and before.is_before(update, other)))
        for end in mine:
            if end not in later and sooner[end].isdisjoint(later) and sooner[end].isdisjoint(mine):
                yield update, end


def _joins(view: GraphView, run: Collection[str], held: Mapping[str, Conditions | None], update: str) -> Iterator[str]:
    """Where the branches that an update is in come together again."""
    seen, queue = {update}, deque([update] if held[update] else ())
    while queue:
        for user in view.consumers[queue.popleft()]:
            if user in run and user not in seen:
                seen.add(user)
                queue.append(user)
                if view.nodes[user].op in rules.MERGES and held.get(user) is not None:
                    yield user


def _implies(held: Mapping[str, Conditions | None], end: str, write: str) -> bool:
    """Is it sure that the write is alive where the end is?"""
    least, most = held[write], held[end]
    return least is not None and most is not None and least <= most


def may_wait(view: GraphView, name: str) -> bool:
    """May an op, or a function that it calls, wait for what another step or thread does, or end when its step is cancelled?"""
    node = view.nodes[name]
    apart = node.op not in rules.INLINED or calls.may_fail_apart(view, node)
    if function_attrs(node.op) != () and "Dataset" not in node.op and apart:
        return True
    return node.op in _LOOPS or any(each.op not in _UPDATES | _PYTHON | rules.CHECKS for each in _meeting(view, name))


def _ends_early(view: GraphView, name: str) -> bool:
    """Does TensorFlow end the op, or not begin it, once an error has cancelled its step? Loops of both generations, and calls that
    stay calls."""
    node = view.nodes[name]
    return node.op in _LOOPS or any(inner.op in _LOOPS for inner in bodies(view, name)) or calls.may_fail_apart(view, node)


def _waits(view: GraphView, name: str) -> bool:
    """May an op that meets others wait for them, or is not known what it does?"""
    return any(each.op not in rules.CHECKS | LOOK_UPS for each in _meeting(view, name))


def _is_update(view: GraphView, name: str) -> bool:
    """Does an op, or a function that it calls, do something that stays? Of functions those that wait for nobody."""
    inner = bodies(view, name)
    if not inner:
        return _writes(view.nodes[name].op) or view.nodes[name].op in _EFFECTS
    return any(_writes(each.op) for each in inner) and all(each.op in _UPDATES for each in _meeting(view, name))


def _writes(op: str) -> bool:
    return op in _UPDATES or (is_write(op) and rules.works_on_variable(op))


def _meeting(view: GraphView, name: str) -> list[Any]:
    """What of an op, or of the functions that it calls, meets others in something else than variables, and in what order shows, as
    NodeDefs. It may wait for them."""
    own = view.nodes[name].proto
    nodes = [] if _is_handle(own) else bodies(view, name) or [own]
    return [node for node in nodes if _meets(node.op) and function_attrs(node.op) == () and not _is_handle(node)]


def _meets(op: str) -> bool:
    if op in rules.VARIABLES or rules.works_on_variable(op) or op in rules.CONTROL_FLOW or op in ("NoOp", VALUE):
        return False
    return op in FAILING | _PYTHON or (not is_pure(op) and not op.startswith((*_DRAWS, *rules.PER_RUN_PREFIXES)))


def _is_handle(node: Any) -> bool:
    """Is this NodeDef there to give a handle, for which it waits for nobody?"""
    outputs = op_defs.output_types(node)
    return (not node.input or node.op in _GIVEN_HANDLES) and bool(outputs) and all(map(holds_state, outputs))


def _met(view: GraphView, name: str) -> set[Any]:
    """What an op meets others in: queues, tables, iterators by their names, Python, prints and files; or it is not known what."""
    meeting = [node for node in _meeting(view, name) if node.op not in rules.CHECKS]
    met: set[Any] = {"outside"} if any(node.op in _OUTSIDE for node in meeting) else set()
    others = [node for node in meeting if node.op not in _OUTSIDE]
    if not others:
        return met
    given = [(source, index) for source, index in view.nodes[name].inputs if index >= 0]
    met |= {state for source, index in given if holds_state(view.outputs(source)[index]) for state in _states(view, source)}
    known = all(any(map(holds_state, op_defs.input_types(node))) for node in others)
    if not known or any(_is_handle(node) and node.op not in rules.VARIABLES for node in bodies(view, name)):
        met.add(_ANY)
    return met


def _states(view: GraphView, handle: str) -> Iterator[Any]:
    """What a handle, or a reference, may stand for."""
    seen, stack = {handle}, [handle]
    for name in stack:  # it grows
        node = view.nodes[name]
        if node.op in HAND_ON:
            more = [source for source, index in node.inputs if index >= 0 and source not in seen]
            seen.update(more)
            stack += more
        elif _is_handle(node.proto):
            if node.op not in rules.VARIABLES:
                yield node.op, name_of_state(node.proto)
        else:
            yield _ANY


def _is_small(view: GraphView, run: Collection[str], write: str) -> bool:
    """Does the write need nothing but the variable and constants? It is done at once."""
    seen, stack = {write}, [write]
    while stack:
        name = stack.pop()
        op = view.nodes[name].op
        if name != write and op not in rules.VARIABLES and op not in ("Const", "Identity", "ReadVariableOp", "NoOp"):
            return False
        for source, _ in view.nodes[name].inputs:
            if source not in run:  # it is fed, where the session is called, and sent to where the write is
                return False
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return True
