"""What of an op's inputs may get to Python, in the functions that it calls, into memory that Python may write to. Pure.

Whatever is made of something may be in its memory; so all that is made of an input counts. It must not know what the input is.
"""

from __future__ import annotations

from typing import Any

from stepd.hook.engine import op_defs, rules
from stepd.hook.engine.graphview import GraphView

_LOOPS = frozenset({"While", "StatelessWhile"})
# Calls whose functions are given the op's inputs -> from which one on.
_FIRST = dict.fromkeys((*rules.INLINED, *_LOOPS), 0) | dict.fromkeys(("If", "StatelessIf", "Case", "StatelessCase"), 1)


def gets_to_python(view: GraphView, node: Any, index: int) -> bool:
    """May Python be given what comes in at an input of a NodeDef, or is that not known?"""
    return _any_gets(view, node, frozenset([index]))


def _any_gets(view: GraphView, node: Any, inputs: frozenset[int], within: tuple[str, ...] = ()) -> bool:
    if node.op in rules.PYTHON_ON_MEMORY:
        return True
    names = list(op_defs.called(node))
    if not names:
        return False
    first = 0 if node.op in view.functions else _FIRST.get(node.op)
    if first is None or any(name not in view.functions or name in within for name in names):
        return True
    given = frozenset(index - first for index in inputs if index >= first)
    while True:
        found = [_returned(view, view.functions[name], given, within) for name in names]
        if None in found:
            return True
        more = given.union(*(each for each in found if each is not None))
        if node.op not in _LOOPS or more == given:
            return False
        given = more  # what one round returns the next one is given


def _returned(view: GraphView, body: Any, given: frozenset[int], within: tuple[str, ...]) -> frozenset[int] | None:
    """Which of a function's results are made of the arguments `given`; None where Python may get one of these. It is called
    `within` others."""
    arguments = [argument.name for argument in body.signature.input_arg]
    made = {arguments[k] for k in given if k < len(arguments)}
    before = -1
    while len(made) != before:
        before = len(made)
        for node in body.node_def:
            sources = [each.partition(":")[0] for each in node.input if each[0] != "^"]
            inputs = frozenset(k for k, source in enumerate(sources) if source in made)
            if inputs:
                if _any_gets(view, node, inputs, (*within, body.signature.name)):
                    return None
                made.add(node.name)
    results = (body.ret[output.name].partition(":")[0] for output in body.signature.output_arg)
    return frozenset(k for k, source in enumerate(results) if source in made)
