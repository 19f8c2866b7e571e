"""Which ops must share a device so that Grappler pushes constants down in a copy where it does plainly.

(a * b) * 0.3 becomes a * (b * 0.3), which may round otherwise, where all five lie on one device; on several it stays as it is.
Pure: it looks at a graph and must not know what moves.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepd.hook.engine import folded, rules, sums, twins, unchanged, unwanted
from stepd.hook.engine.graphview import GraphView, Node

_SUMS = rules.SUMS_OF_TWO | {"AddN"}


def beside(view: GraphView, node: Node, constants: frozenset[str]) -> Iterator[str]:
    """The ops that must lie where `node` does, because one of `constants` that it adds, or multiplies by, may go down into them.

    How many read the ops in between makes no difference here: a step that needs only one of the readers is rewritten.
    """
    own = [name for name, k in node.inputs if k >= 0 and name in constants]
    if not own or node.op == "Pow" or not _down(view, node, constants):
        return
    yield from _with_readers(view, own)
    yield from unwanted.behind(view, node.name)
    # A tuple's NoOp on another device puts off what Grappler does to whom it waits for: other factors are side by side then.
    yield from (name for name in view.consumers[node.name] if view.nodes[name].op == "NoOp")
    stack, seen = [node], {node.name}
    while stack:
        for below, between in _down(view, stack.pop(), constants):
            if below.name in seen:
                continue
            seen.add(below.name)
            stack.append(below)
            yield below.name
            yield from between
            yield from _powers(view, below)
            # As long as what nobody wants waits for it, it cannot be put in another order.
            nobodys = [*unwanted.behind(view, below.name)]
            yield from (*nobodys, *unwanted.awaiting(view, nobodys))
            given = [each for each in below.inputs if each[1] >= 0]
            for maker, handing_on in (_behind(view, *each) for each in given if each[0] not in constants):
                yield from (*handing_on, maker.name)
            yield from _with_readers(view, [name for name, _ in given if name in constants])


def _down(view: GraphView, node: Node, constants: frozenset[str]) -> list[tuple[Node, tuple[str, ...]]]:
    """What `node` is given that a constant may be pushed into, and what lies in between and may turn out to change nothing."""
    given = [_behind(view, name, k) for name, k in node.inputs if k >= 0 and name not in constants]
    alike: frozenset[str] = frozenset().union(*(ops for ops in rules.PUSHED_DOWN if node.op in ops))
    found = [(below, between) for below, between in given if below.op in alike and below.name not in constants]
    if node.op == "Mul" or node.op in rules.QUOTIENTS:
        found += [(below, between) for below, between in given if _is_scaled(view, below, constants)]
    return found


def _is_scaled(view: GraphView, node: Node, constants: frozenset[str]) -> bool:
    """Can it take a factor in? A contraction by a constant can, and what adds up one value several times, which is a product."""
    taken = [name for name, k in node.inputs if k >= 0]
    if node.op in rules.CONTRACTIONS:
        return any(name in constants for name in taken)
    one = twins.of(view).one
    return node.op in _SUMS and len(taken) > 1 and len({one.get(name, name) for name in taken}) == 1


def _powers(view: GraphView, node: Node) -> Iterator[str]:
    """Of a third power: the other powers of its base, as its gradient takes, and what computes their exponents. A square is joined
    with the one that the third power becomes a product of, and which factor a constant goes into depends on who else reads it."""
    base = node.inputs[0]
    for name in view.consumers[base[0]] if node.op == "Pow" else ():
        power = view.nodes[name]
        if power.op in ("Pow", "Square") and base in power.inputs:
            yield name
            exponents = [source for source, k in power.inputs[1:] if k >= 0 and view.nodes[source].op != "Const"]
            yield from _with_readers(view, exponents if folded.constants(view).issuperset(exponents) else [])


def _behind(view: GraphView, name: str, index: int) -> tuple[Node, tuple[str, ...]]:
    """What makes the output `index` of `name`, and what only hands it on where nothing was broadcast, with what computes along
    which axes it sums: Grappler takes such ops out, but leaves an Identity that waits where something of it is on another device.
    So it does with a tuple's whose barrier, or what only that waits for, is on another device."""
    between: list[str] = []
    while True:
        node = view.nodes[name]
        if node.op in sums.PASSING and node.inputs and node.inputs[0][1] >= 0:
            first, *others = node.inputs
            between += [name, *_with_readers(view, [other for other, k in others if k >= 0 and view.nodes[other].op != "Const"])]
            for barrier in (other for other, k in others if k < 0 and view.nodes[other].op == "NoOp"):
                between += [barrier, *unwanted.before(view, barrier)]
            name, index = first
        elif behind := unchanged.handed_on(view, node, index):
            between += behind[1]
            name, index = behind[0]
        else:
            return node, tuple(between)


def _with_readers(view: GraphView, names: list[str]) -> Iterator[str]:
    """What computes the constants `names`, since Grappler folds constants of one device only; of plain ones, which lie where all
    their readers do, whoever else reads them. Plain ones further up are left out: all of an optimizer's updates may read them. With
    what a tuple's barrier waits for that nobody wants: what is folded behind it waits for it, too.
    """
    yield from (reader for name in names if view.nodes[name].op == "Const" for reader in view.consumers[name])
    stack, seen = [name for name in names if view.nodes[name].op != "Const"], set(names)
    while stack:
        name = stack.pop()
        yield name
        node = view.nodes[name]
        for barrier in (source for source, k in node.inputs if k < 0 and view.nodes[source].op == "NoOp"):
            yield from unwanted.before(view, barrier)
        if node.op not in rules.OF_SHAPES:
            given = {source for source, k in node.inputs if k >= 0 and view.nodes[source].op != "Const"} - seen
            seen |= given
            stack += sorted(given)
