"""Trains a model twice, as it is and with its ops split, and hands out the losses of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from split_harness import copied, facts_of
from split_models import MODELS, Data

from stepd.hook.model import Split
from stepd.hook.rewrite.chosen import Chosen, choose
from stepd.hook.rewrite.emit import split_nodes
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.replicate import batch_regions

MARK = "stepd_1"
_PART = re.compile(r"-part\d+")
Picks = Callable[[Facts], tuple[dict[str, Chosen], dict[str, str]]]


@dataclass
class Both:
    """What came of one comparison."""

    facts: Facts
    chosen: dict[str, Chosen]
    refused: dict[str, str]
    nodes: list[Any]
    plain: Any
    split: Any
    nudged: Any  # plainly, with every number fed one unit in the last place larger; None: not asked for

    @property
    def difference(self) -> float:
        """The largest difference of two losses, relative to the plain one, or to a hundredth of the first where it is less: models
        that learn six examples by heart come down to a loss of exactly 0."""
        return self._apart(self.split)

    @property
    def chaos(self) -> float:
        """As `difference`, of the nudged losses: what training itself makes of the least difference."""
        return self._apart(self.nudged)

    def _apart(self, losses: Any) -> float:
        least = 0.01 * abs(self.plain[0])
        return float(np.max(np.abs(self.plain - losses) / np.maximum(np.abs(self.plain), least)))

    def cuts(self) -> list[str]:
        """Ops whose outputs are cut."""
        return sorted({n.name.split("-stepd")[0] for n in self.nodes if n.op in ("Split", "SplitV") and "-cut" in n.name})

    def waits_across(self) -> list[tuple[str, str]]:
        """(part, what it waits for) where that is another part, or a whole NoOp, which waits for all parts of something."""
        found = []
        for node in self.nodes:
            own = _PART.search(node.name)
            for text in node.input if own else ():
                other = _PART.search(text)
                if text.startswith("^") and (other.group() != own.group() if other else text.endswith(f"group_deps-{MARK}")):
                    found.append((node.name, text))
        return found

    def joined(self) -> list[tuple[str, str]]:
        """(op in parts along an axis, op that reads all of it)."""
        return [
            (source, name)
            for name in self.facts.order
            if name not in self.chosen
            for source, index in self.facts.data_inputs(name)
            if source in self.chosen and self.chosen[source].given(index).kind == "cut"
        ]


def replicated(weights: Sequence[float], into: tuple[int, ...] = ()) -> Picks:
    """Everything along the batch; sums added up as `into` says."""

    def pick(facts: Facts) -> tuple[dict[str, Chosen], dict[str, str]]:
        regions = batch_regions(facts)
        parts, shares = len(weights), tuple(weights)
        splits = [Split(name, "batch", parts, (), shares, into if w.adds else ()) for name, (w, _) in regions.ways.items()]
        return choose(facts, splits, regions.ways)

    return pick


def sliced(weights: Sequence[float], columns: bool) -> Picks:
    """Dense layers along their weight, by columns or by rows (tensor parallelism); all else along the batch."""

    def pick(facts: Facts) -> tuple[dict[str, Chosen], dict[str, str]]:
        nodes = facts.view.nodes
        products = {}
        for name in facts.order:
            if nodes[name].op == "MatMul":
                of_weight = _is_weight(facts, facts.data_inputs(name)[1][0])
                back = of_weight and nodes[name].proto.attr["transpose_b"].b
                products[name] = ("1" if back != columns else "inner") if of_weight else ("1" if columns else "0")
        splits = [Split(name, axis, len(weights), (), tuple(weights)) for name, axis in products.items()]
        regions = batch_regions(facts, products)
        splits += [Split(name, "batch", len(weights), (), tuple(weights)) for name in regions.ways]
        return choose(facts, splits, regions.ways)

    return pick


def _is_weight(facts: Facts, name: str) -> bool:
    """Whether an op hands out a variable."""
    while facts.view.nodes[name].op in ("Identity", "Enter"):
        name = facts.data_inputs(name)[0][0]
    return facts.view.nodes[name].op in ("ReadVariableOp", "VariableV2")


def train_both(model: str, data: Data, steps: int, pick: Picks, nudge: bool = False) -> Both:
    """Losses of `steps` steps of a model of split_models, plainly and with what `pick` chooses split; and nudged if asked for."""
    with tf.Graph().as_default() as graph:
        loss, train = MODELS[model](data)
        start = tf.global_variables_initializer()
    facts = facts_of(graph)
    chosen, refused = pick(facts)
    nodes = copied(facts, list(facts.order), MARK)
    for node in nodes.values():
        node.attr.pop("_class", None)
    made = split_nodes(facts, nodes, chosen, MARK)
    plain = graph.as_graph_def()
    rewritten = graph.as_graph_def()
    del rewritten.node[:]
    rewritten.node.extend(made)
    names = loss.op.name, train.name, start.name, [op.name for op in data.before]
    runs = [_train(definition, names, mark, data, steps) for definition, mark in ((plain, ""), (rewritten, f"-{MARK}"))]
    nudged = _train(plain, names, "", _nudged(data), steps) if nudge else None
    return Both(facts, chosen, refused, made, *runs, nudged)


def _nudged(data: Data) -> Data:
    """The same with every floating-point number one unit in the last place larger."""
    other = copy(data)
    other.arrays = {k: np.nextafter(v, v.dtype.type(np.inf)) if v.dtype.kind == "f" else v for k, v in data.arrays.items()}
    return other


def _train(definition: Any, names: tuple[str, str, str, list[str]], mark: str, data: Data, steps: int) -> Any:
    loss, train, start, before = names
    losses = []
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(definition, name="")
        with tf.Session(graph=graph) as session:
            session.run(start + mark)
            for name in before:
                session.run(name + mark)
            for step in range(steps):
                # A batch known late also ends with fewer rows than there are parts.
                rows = data.batch - step % data.batch if data.late else data.batch
                fed = {f"{name}{mark}:0": np.roll(array, step, 0)[:rows] for name, array in data.arrays.items()}
                losses.append(session.run([f"{loss}{mark}:0", train + mark], fed)[0])
    return np.array(losses)
