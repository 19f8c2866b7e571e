"""What an op does that stays, or in which it meets others and may have to wait for them. Pure.

Of what ops of one step do beside each other the order shows where they meet: in a queue, in a table, in what they print. It must
not know of errors, nor what comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from stepd.hook.engine import calls, op_defs, rules
from stepd.hook.engine.fallible import FAILING, VALUE
from stepd.hook.engine.graphview import GraphView, name_of_state
from stepd.hook.engine.inside import bodies
from stepd.hook.engine.op_defs import function_attrs, holds_state, is_pure
from stepd.hook.engine.races import HAND_ON, is_write
from stepd.hook.engine.unsure import LOOK_UPS

PYTHON = frozenset({"PyFunc", "EagerPyFunc", "PyFuncStateless", "Print", "PrintV2"})
# Beside writes of variables; none of them waits for anybody.
_UPDATES = frozenset({
    "RngReadAndSkip", "RngSkip", "LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2",
    "AccumulatorApplyGradient", "SparseAccumulatorApplyGradient", "ResourceAccumulatorApplyGradient",
    "AccumulatorSetGlobalStep", "ResourceAccumulatorSetGlobalStep", "ImportEvent", "WriteSummary",
    "WriteScalarSummary", "WriteHistogramSummary", "WriteImageSummary", "WriteAudioSummary", "WriteGraphSummary",
    "WriteRawProtoSummary",
})  # fmt: skip
# What is done once and shows outside: calls of Python and texts, which may wait for others, and files.
_EFFECTS = PYTHON | {"WriteFile", "Save", "SaveSlices", "SaveV2"}
_OUTSIDE = _EFFECTS | {"Restore", "RestoreSlice", "RestoreV2"}
# Handles that are given something, but for which nobody waits.
_GIVEN_HANDLES = frozenset({"MutableDenseHashTable", "MutableDenseHashTableV2"})
# Stateful, but who comes first does not show.
_DRAWS = (
    "Random", "TruncatedNormal", "Multinomial", "ParameterizedTruncatedNormal", "StatefulUniform", "StatefulStandardNormal",
    "StatefulTruncatedNormal", "StatefulRandom", "NonDeterministicInts", "SampleDistorted", "CudnnRNN", "AllCandidate",
    "FixedUnigramCandidate", "LogUniformCandidate", "UniformCandidate",
)  # fmt: skip
ANY = "?"
"""Something, and it is not known what."""
# Of both generations, and what ends each round of the first.
_LOOPS = frozenset({"LoopCond", "While", "StatelessWhile"})


def may_wait(view: GraphView, name: str) -> bool:
    """May an op, or a function that it calls, wait for what another step or thread does, or end when its step is cancelled?"""
    node = view.nodes[name]
    apart = node.op not in rules.INLINED or calls.may_fail_apart(view, node)
    if function_attrs(node.op) != () and "Dataset" not in node.op and apart:
        return True
    return node.op in _LOOPS or any(each.op not in _UPDATES | PYTHON | rules.CHECKS for each in meeting_in(view, name))


def ends_early(view: GraphView, name: str) -> bool:
    """Does TensorFlow end the op, or not begin it, once an error has cancelled its step? Loops of both generations, and calls that
    stay calls."""
    node = view.nodes[name]
    return node.op in _LOOPS or any(inner.op in _LOOPS for inner in bodies(view, name)) or calls.may_fail_apart(view, node)


def waits(view: GraphView, name: str) -> bool:
    """May an op that meets others wait for them, or is not known what it does?"""
    return any(each.op not in rules.CHECKS | LOOK_UPS for each in meeting_in(view, name))


def is_update(view: GraphView, name: str) -> bool:
    """Does an op, or a function that it calls, do something that stays? Of functions those that wait for nobody."""
    inner = bodies(view, name)
    if not inner:
        return _writes(view.nodes[name].op) or view.nodes[name].op in _EFFECTS
    return any(_writes(each.op) for each in inner) and all(each.op in _UPDATES for each in meeting_in(view, name))


def _writes(op: str) -> bool:
    return op in _UPDATES or (is_write(op) and rules.works_on_variable(op))


def meeting_in(view: GraphView, name: str) -> list[Any]:
    """What of an op, or of the functions that it calls, meets others in something else than variables, and in what order shows, as
    NodeDefs. It may wait for them."""
    own = view.nodes[name].proto
    nodes = [] if _is_handle(own) else bodies(view, name) or [own]
    return [node for node in nodes if _meets(node.op) and function_attrs(node.op) == () and not _is_handle(node)]


def _meets(op: str) -> bool:
    if op in rules.VARIABLES or rules.works_on_variable(op) or op in rules.CONTROL_FLOW or op in ("NoOp", VALUE):
        return False
    return op in FAILING | PYTHON or (not is_pure(op) and not op.startswith((*_DRAWS, *rules.PER_RUN_PREFIXES)))


def _is_handle(node: Any) -> bool:
    """Is this NodeDef there to give a handle, for which it waits for nobody?"""
    outputs = op_defs.output_types(node)
    return (not node.input or node.op in _GIVEN_HANDLES) and bool(outputs) and all(map(holds_state, outputs))


def met_in(view: GraphView, name: str) -> set[Any]:
    """What an op meets others in: queues, tables, iterators by their names, Python, prints and files; or it is not known what."""
    meeting = [node for node in meeting_in(view, name) if node.op not in rules.CHECKS]
    met: set[Any] = {"outside"} if any(node.op in _OUTSIDE for node in meeting) else set()
    others = [node for node in meeting if node.op not in _OUTSIDE]
    if not others:
        return met
    given = [(source, index) for source, index in view.nodes[name].inputs if index >= 0]
    met |= {state for source, index in given if holds_state(view.outputs(source)[index]) for state in _states(view, source)}
    known = all(any(map(holds_state, op_defs.input_types(node))) for node in others)
    if not known or any(_is_handle(node) and node.op not in rules.VARIABLES for node in bodies(view, name)):
        met.add(ANY)
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
            yield ANY


def is_small(view: GraphView, run: Collection[str], write: str) -> bool:
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
