"""Which ops must share a device, because of the state that they hand on or of what Grappler makes of them there. Pure.

It must not know what may move otherwise, nor strategies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any

from stepd.hook.engine import (
    aliases,
    calls,
    folded,
    graphview,
    held,
    hoisted,
    inlined,
    onednn,
    op_defs,
    pushed,
    rules,
    settled,
    sums,
    twins,
    unchanged,
    unwanted,
)
from stepd.hook.engine.graphview import GraphView, Node


def of(view: GraphView, home: Callable[[Node], str]) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """Sets of ops that share a device: by state and memory that they hand on, and by what Grappler fuses; and which of the latter
    lie on several devices now, where Grappler leaves them alone: on one they would round otherwise.

    The user's colocation (`_class`) is a wish like tf.device, and free like it: gradients write it on every op that they
    bring together, which would tie the branches of a block to one device.
    """
    union = graphview.Union()
    for worker, given in aliases.late_workers(view):
        union.join(given, worker)
    spread: dict[str, str] = {}

    @functools.cache
    def where(name: str) -> str:
        return home(view.nodes[name])

    for one, other in _rewritten_together(view):
        union.join(one, other)
        if where(one) != where(other):
            spread[one] = f"the program has it on another device than {other}, with which it would be joined"
            # Whether what is left of the function goes, or spoils the step, hangs on who takes the place (`rules.FUSED`).
            for reader in _takers(view, other) if view.nodes[other].op in rules.PLACES else ():
                union.join(other, reader)
    for names in union.sets() if spread else ():
        # What waits across devices does so for longer, which says what Grappler puts in another order; not with a reader elsewhere.
        for name in () if spread.keys().isdisjoint(names) else unwanted.awaiting(view, names):
            union.join(names[0], name)
    for node in view.nodes.values():
        types = op_defs.input_types(node.proto) if op_defs.may_hold_state(node.op) else ()
        sums_inside = sums.in_bodies(view, node)
        for reader in graphview.takers(view, node.name) if calls.may_fail_apart(view, node) else ():
            union.join(node.name, reader)
        for i, (source, k) in enumerate(node.inputs):
            if k < 0:
                continue
            state = i < len(types) and op_defs.holds_state(types[i])
            # The read of a reference variable names the variable in errors only where the variable is.
            read = node.op == "Identity" and view.nodes[source].op in ("VariableV2", "Variable")
            if state or read or sums_inside:
                union.join(source, node.name)
            if node.op in rules.NAMES_ITS_INPUT:
                for one in _handed_on(view, source):
                    union.join(one, node.name)
    return tuple(tuple(names) for names in union.sets() if len(names) > 1), spread


def _takers(view: GraphView, name: str) -> Iterator[str]:
    """Who takes the value `name`, also behind what only hands it on."""
    for taker in graphview.takers(view, name):
        yield taker
        if unchanged.handed_on(view, view.nodes[taker]):
            yield from _takers(view, taker)


def _handed_on(view: GraphView, name: str) -> Iterator[str]:
    """`name`, and whose value it is where it only hands one on: Grappler takes such ops out, and errors name what is left."""
    yield name
    while view.nodes[name].op == "Identity":
        name = view.nodes[name].inputs[0][0]
        yield name


def _negations(view: GraphView, node: Node) -> Iterator[str]:
    """What a sum is given negated behind a tuple, and the tuple's end."""
    for source, k in node.inputs if node.op in rules.SUMS_AND_DIFFERENCES else ():
        chain = [*_handed_on(view, source)] if k >= 0 else []
        if chain and view.nodes[chain[-1]].op == "Neg":
            yield from chain


def _rewritten_together(view: GraphView) -> Iterator[tuple[str, str]]:
    """Pairs of ops that Grappler rewrites together, or because of each other, where they share a device."""
    constants = folded.with_loops(view)  # there constants are pushed down, too
    yield from settled.neighbours(view)
    yield from held.holders(view)
    yield from hoisted.chains(view)
    yield from folded.together(view)
    yield from unwanted.across_devices(view)
    for first, *others in (*twins.of(view).sets, *onednn.together(view)):
        yield from ((first, other) for other in others)
    for node in view.nodes.values():
        in_sums = (*sorted(sums.first_terms(view, node)), *sums.waits_of_terms(view, node))
        for name in (*in_sums, *pushed.beside(view, node, constants), *unchanged.waited_for(node)):
            yield name, node.name
        yield from ((name, node.name) for name in (*inlined.neighbours(view, node), *_negations(view, node)))
        if node.op in rules.ARITHMETIC:
            yield from ((name, node.name) for name in _behind_tuples(view, node))
        for source, k in node.inputs:
            for producer, between in unchanged.behind_names(view, source, k) if k >= 0 else ():
                if _fused(view, producer, between, node):
                    yield from ((name, node.name) for name in (producer.name, *between))
                    yield from ((other, node.name) for other in _with_constants(view, producer, node))
                    if producer.op in rules.ARITHMETIC and node.op in rules.ARITHMETIC:
                        besides = (*unwanted.undoing(view, producer.name), *unwanted.left_out(view, producer.name, node.name))
                        besides += (*unwanted.given_by_tuples(view, producer.name),)
                        yield from ((other, node.name) for other in besides)
                        for one in (producer.name, node.name):
                            nobodys = list(unwanted.behind(view, one))
                            yield from ((other, one) for other in (*nobodys, *unwanted.taken(view, nobodys)))


def _fused(view: GraphView, producer: Node, between: tuple[str, ...], consumer: Node) -> bool:
    if _listed(producer.op, consumer.op, rules.FUSED):
        return True
    if between and _listed(producer.op, consumer.op, rules.REWRITTEN_APART):
        return True  # what lies between two devices is not taken out
    if not _is_alike(producer, consumer):
        return False
    if _small_first(view, producer, consumer):
        return True  # who else reads the inner one may be left out of a step: one that evaluates, or wants some gradients only
    nobodys = frozenset(unwanted.behind(view, producer.name, fetched=True)) if producer.op in rules.ARITHMETIC else frozenset()
    return all(_readers(view, view.nodes[name], nobodys) == 1 for name in (producer.name, *between))


def _behind_tuples(view: GraphView, node: Node) -> Iterator[str]:
    """Of gradients: the products and sums that `node` is given through tuples of which nobody wants another end, where it alone
    reads them, or who else does may be left out of a step, and what must lie beside for the two to meet: a constant's gradient is
    one that nobody wants."""
    for source in (source for source, k in node.inputs if k >= 0):
        for partly in (False, True):
            chain, aside = unwanted.behind_tuples(view, source, partly)
            *between, producer = chain
            if not between or not _is_alike(view.nodes[producer], node):
                continue
            besides = frozenset(aside).union(*(unwanted.behind(view, name) for name in chain)).difference(chain)
            if not partly and all(_readers(view, view.nodes[name], besides) == 1 for name in chain):
                by_a_number = any(_is_constant(view, view.nodes[s]) for s, k in view.nodes[producer].inputs if k >= 0)
                yield from (*chain, *sorted(besides), *unwanted.taken(view, besides))
                yield from unwanted.given_by_tuples(view, producer, every=by_a_number)
                break
            if _small_first(view, view.nodes[producer], node) and unwanted.undo_broadcasting(view, node.name):
                left_out = {other for name in chain for other in unwanted.left_out(view, name, node.name)}
                yield from (*chain, *sorted(besides | left_out), *unwanted.taken(view, besides))
                yield from unwanted.given_by_tuples(view, producer)
                break


def _is_alike(producer: Node, consumer: Node) -> bool:
    """Would Grappler rewrite the two together if nobody else read what the first makes?"""
    return _listed(producer.op, consumer.op, rules.FUSED_IF_SOLE_READER)


@functools.cache
def _listed(producer: str, consumer: str, pairs: tuple[tuple[Any, ...], ...]) -> bool:
    """Is the one op type among the first, and the other among the second, of any of these?"""
    return any(producer in first and consumer in second for first, second, *_ in pairs)


def _small_first(view: GraphView, producer: Node, consumer: Node) -> bool:
    """Whether Grappler may put the two in another order, so that small operands meet first. Sums of which nothing shows that some
    term is smaller (a bias, what was reduced) may stay apart: residual nets are made of them."""
    if _multiplies(view, producer) and _multiplies(view, consumer):
        return True
    if producer.op not in rules.SUMS_OF_TWO or consumer.op not in rules.SUMS_OF_TWO:
        return False
    makers = (maker for node in (producer, consumer) for name, k in node.inputs if k >= 0 for maker in _handed_on(view, name))
    return any(_is_small(view.nodes[name]) for name in makers)


def _multiplies(view: GraphView, node: Node) -> bool:
    """Is it a product, or a quotient of which Grappler makes one before it puts products in order?"""
    if node.op not in rules.QUOTIENTS or len(node.inputs) < 2:
        return node.op in rules.BROADCAST
    divisor = view.nodes[node.inputs[1][0]]
    return divisor.op == "Sqrt" or _is_constant(view, divisor)


def _is_small(node: Node) -> bool:
    reduced = node.op in ("Mean", "Sum", "Max", "Min") and node.proto.attr["keep_dims"].b
    return reduced or node.op in ("ReadVariableOp", "Const") or node.op in rules.VARIABLES


def _readers(view: GraphView, producer: Node, besides: Collection[str] = ()) -> int:
    """How many read its value, `besides` left out. Who only asks for the shape of a sum or product may be gone by the time at which
    Grappler counts: gradients do, to undo broadcasting. So is what a loop keeps of it for its gradients, in steps that evaluate.
    """
    may_be_gone = (rules.OF_SHAPES if producer.op in rules.ARITHMETIC else frozenset()) | rules.KEEPS_FOR_GRADIENTS
    made_one = twins.of(view)
    users = (user for name in made_one.alike(producer.name) for user in view.consumers[name])
    readers = (user for user in users if user not in besides and view.nodes[user].op not in may_be_gone)
    return made_one.count(dict.fromkeys(readers))  # who reads it twice is one to Grappler


def _with_constants(view: GraphView, producer: Node, consumer: Node) -> Iterator[str]:
    """Of two ops that Grappler may join because it knows what each is combined with, whoever else reads those constants: a constant
    that is read on several devices lies on another one than the ops, and they are not joined then.
    """
    constants = [[s for s, k in node.inputs if k >= 0 and _is_constant(view, view.nodes[s])] for node in (producer, consumer)]
    for name in (*constants[0], *constants[1]) if all(constants) else ():
        if view.nodes[name].op != "Const":
            yield name
        yield from view.consumers[name]


def _is_constant(view: GraphView, node: Node) -> bool:
    while node.op in ("Cast", "Identity") and len(node.inputs) == 1:
        node = view.nodes[node.inputs[0][0]]
    return node.op == "Const" and not node.inputs
