"""What an op waits for that its own device cannot hurry: values from other devices, and ops that block on the world. Pure.

An order edge from `a` to `b` is allowed only when `a` waits for nothing of this kind that `b` does not wait for. Then, whenever all
that `b` needs is there, either `a` or something that `a` still needs can run on their device: the edge leaves no device idle that
could work (no head-of-line blocking by receives), and never waits for a queue that `b` itself would have filled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stepd.hook.engine import rules
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.op_defs import function_attrs, is_stateful

# Stateful, but they end by themselves: variables, and random numbers.
_NEVER_BLOCK = rules.VARIABLES | rules.WITHOUT_MEMORY - {"PyFunc", "EagerPyFunc", "PyFuncStateless"}


def may_block(view: GraphView, name: str) -> bool:
    """Whether the op may wait for what happens outside of its inputs, or run code of which nothing is known."""
    node = view.nodes[name]
    op = node.op
    if op == "PyFuncStateless" or function_attrs(op) or function_attrs(op) is None:
        return True
    if not is_stateful(op) or op in _NEVER_BLOCK or rules.works_on_variable(op) or op.startswith(rules.PER_RUN_PREFIXES):
        return False
    return "seed" not in node.proto.attr


def waits(
    view: GraphView, order: Iterable[str], needed: Mapping[str, Iterable[str]], device_of: Mapping[str, str]
) -> dict[str, int]:
    """Op -> bit set of the waits among its ancestors and at itself; `order` is sorted by `needed`."""
    return waits_of(order, needed, device_of, lambda name: may_block(view, name))


def waits_of(
    order: Iterable[str], needed: Mapping[str, Iterable[str]], device_of: Mapping[str, str], blocks: Callable[[str], bool]
) -> dict[str, int]:
    """As `waits`, of any names; `blocks` says which may wait for the world.

    A value that two ops of one device need is one wait: it is sent once.
    """
    found: dict[str, int] = {}
    numbers: dict[tuple[str, str], int] = {}
    for name in order:
        bits = 0
        here = device_of[name]
        for source in needed[name]:
            bits |= found[source]
            if device_of[source] != here:
                bits |= 1 << numbers.setdefault((source, here), len(numbers))
        if blocks(name):
            bits |= 1 << numbers.setdefault((name, ""), len(numbers))
        found[name] = bits
    return found
