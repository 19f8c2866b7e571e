"""Which ops of a step are sure to have run before another runs, whatever branch is taken and however often a loop goes round. Pure.

A path in the graph is not enough. A Merge goes on with the first live input that it gets, so that it waits for an op only where all
its inputs do, or where the op does not run when another input is live. What a loop's Exit waits for is what its variable needed in
every round, and a round may begin before another has ended. It must not know what the ops do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tensorflow.core.framework import types_pb2

from stepd.hook.engine import rules
from stepd.hook.engine.graphview import GraphView
from stepd.hook.order.conditions import Conditions, in_a_round, loops, of_input
from stepd.hook.order.walk import EXIT, NEXT, needs, sorted_by_needs

_EVERYTHING = -1  # as a set of bits


class Before:
    """The order among `ends` in a step that executes `step` and is fed `fed`."""

    def __init__(self, view: GraphView, step: Collection[str], fed: Collection[tuple[str, int]], ends: Collection[str]) -> None:
        order = sorted_by_needs(needs(view, step)) if ends else []
        self._order: list[str] = [] if order is None else order
        self._view, self._fed = view, fed
        self._loops = loops(view, self._order)
        # Of an op in loops within a round: one that begins later, or has not ended yet, may take another branch.
        self._held: Mapping[str, Conditions | None] = in_a_round(view, self._order, self._loops) if _known(view, fed) else {}
        turning = [name for name in self._order if _turns(view, name)]
        rounds = [name for name in self._order if view.nodes[name].op == "LoopCond"]
        # A bit for every op of which we want to know, and in loops one for each variable, as it is when a round begins, and one for
        # "the loop goes on", which nothing has that runs when it ends.
        self._bits = {name: 1 << k for k, name in enumerate(dict.fromkeys((*ends, *turning, *rounds)))}
        self._of_ends = {name: self._bits[name] for name in ends}
        self._rounds = frozenset(rounds)
        self._turned = dict.fromkeys(turning, _EVERYTHING)  # by a loop's Merge: what its next round waits for
        self._reached: dict[str, int] = {}
        # What holds in a round when it held in all before: assume everything, and take away what does not follow, until all does.
        while self._pass() and turning:
            pass

    def is_before(self, one: str, other: str) -> bool:
        """Has `one` run when `other` runs, in whatever round of the loops around both?"""
        if not self._reached.get(other, 0) & self._bits[one]:
            return False
        around = [name for name, also in zip(self._loops[one], self._loops[other], strict=False) if name == also]
        return not around or (len(around) == 1 and self._goes_round(one, other, around[0]))

    def mask(self, names: Iterable[str]) -> int:
        """Several ends as one, for `some`."""
        return _any(self._bits[name] for name in names)

    def some(self, mask: int, other: str) -> bool:
        """May one of several ends be before `other`? Where not, nobody has to ask of each."""
        return self._reached.get(other, 0) & mask != 0

    def exclude(self, one: str, other: str) -> bool:
        """Is it sure that never both run, since a condition would have to be both true and false?"""
        if self._loops.get(one) or self._loops.get(other):
            return False
        held, also = self._held.get(one), self._held.get(other)
        return held is not None and also is not None and any((name, 1 - taken) in also for name, taken in held)

    def _goes_round(self, one: str, other: str, loop: str) -> bool:
        """Is `other` of one round before `one` of the next, for whose sake a variable of the loop is handed on?"""
        return any(
            self._loops[merge][-1:] == (loop,) and self._is_carried(merge) and turned & self._bits[other]
            and self._reached[one] & self._bits[merge]
            for merge, turned in self._turned.items()
        )  # fmt: skip

    def _is_carried(self, merge: str) -> bool:
        """Does what the variable is in the next round wait for what it is in this one?"""
        return bool(self._turned[merge] & self._bits[merge])

    def _pass(self) -> bool:
        """One pass over the step; did it take away anything?"""
        changed = False
        for name in self._order:
            now = self._waits_for(name) | self._of_ends.get(name, 0)
            changed |= now != self._reached.get(name)
            self._reached[name] = now
        for merge in self._turned:
            back = [source for source, _ in self._view.nodes[merge].inputs if self._view.nodes[source].op in NEXT]
            now = self._turned[merge]
            for source in back:
                now &= self._reached.get(source, 0)
            self._turned[merge] = now
        return changed

    def _waits_for(self, name: str) -> int:
        node = self._view.nodes[name]
        inputs = [read for read in node.inputs if read not in self._fed and read[0] in self._reached]
        if name in self._turned:
            entered = [self._of_input(read) for read in inputs if self._view.nodes[read[0]].op not in NEXT]
            return _all(entered) & self._turned[name] | self._bits[name]
        if node.op in rules.MERGES:
            return self._merged([read for read in inputs if read[1] >= 0]) | _any(self._of_input(r) for r in inputs if r[1] < 0)
        waits = _any(self._of_input(read) for read in inputs)
        return waits | self._of_all_rounds(inputs[0][0]) if node.op in EXIT and inputs else waits

    def _of_input(self, read: tuple[str, int]) -> int:
        source, index = read
        node = self._view.nodes[source]
        goes_on = node.op in rules.SWITCHES and index == 1 and node.inputs[1][0] in self._rounds
        return self._reached[source] | (self._bits[node.inputs[1][0]] if goes_on else 0)

    def _merged(self, inputs: list[tuple[str, int]]) -> int:
        """What every input waits for, or does when what is live there runs at all."""
        masks = [self._of_input(read) for read in inputs]
        sure = _all(masks)
        if len(inputs) != 2 or not _any(masks) & ~sure:
            return sure
        branches = [of_input(self._view, self._held, *read) for read in inputs]
        for mine, other, mask in ((branches[0], branches[1], masks[0]), (branches[1], branches[0], masks[1])):
            # What runs only where the other branch does not: it runs, so this branch is the live one.
            missing = {(predicate, 1 - taken) for predicate, taken in other or ()} & set(mine or ())
            for end, bit in self._of_ends.items() if missing else ():
                if mask & bit and not missing.isdisjoint(self._held.get(end) or ()):
                    sure |= bit
        return sure

    def _of_all_rounds(self, switch: str) -> int:
        """Of the Exit of a variable: what has run in every round, since the variable needed it and was handed on."""
        node = self._view.nodes[switch]
        merge, condition = (node.inputs[0][0], node.inputs[1][0]) if node.op in rules.SWITCHES else ("", "")
        if merge not in self._turned or condition not in self._rounds or not self._is_carried(merge):
            return 0
        last = self._reached[condition]  # runs also in the round that ends the loop
        return _any(
            bit
            for end, bit in self._of_ends.items()
            if self._turned[merge] & bit and (last & bit or self._reached.get(end, _EVERYTHING) & self._bits[condition])
        )


def _turns(view: GraphView, name: str) -> bool:
    """Is this the Merge with which a variable of a loop begins each round?"""
    return view.nodes[name].op in rules.MERGES and any(view.nodes[source].op in NEXT for source, _ in view.nodes[name].inputs)


def _known(view: GraphView, fed: Collection[tuple[str, int]]) -> bool:
    """Do the graph's own conditions hold? Not where one is fed in the middle, or what a branch begins with."""
    for source, index in fed:
        node = view.nodes.get(source)
        if node is not None and (node.op in rules.SWITCHES or (view.outputs(source)[index] == types_pb2.DT_BOOL and node.inputs)):
            return False
    return True


def _any(masks: Iterable[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _all(masks: Iterable[int]) -> int:
    found, seen = _EVERYTHING, False
    for mask in masks:
        found, seen = found & mask, True
    return found if seen else 0
