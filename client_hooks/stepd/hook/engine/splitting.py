"""What of a strategy's splits is carried out on one version of a session's graph.

Keeps the facts of the graph, which are computed when a strategy splits first. It must not know copies or sessions.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

from stepd.hook.engine.classify import Classes
from stepd.hook.engine.devices import Devices
from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.home import allowed
from stepd.hook.engine.mirror import Mirror
from stepd.hook.log import logger as log
from stepd.hook.model import LiveStrategy, NotHonoured, Split, SplitOffer
from stepd.hook.rewrite.chosen import BATCH, Chosen, choose
from stepd.hook.rewrite.facts import Facts
from stepd.hook.rewrite.feeds import fed_at
from stepd.hook.rewrite.offers import offers
from stepd.hook.rewrite.replicate import Regions, batch_regions
from stepd.hook.rewrite.shapes import static_shapes
from stepd.hook.rewrite.slots import Way
from stepd.hook.rewrite.sums import by_names


class Splitting:
    """Splits for one session, of whose mirror the user's graph alone knows shapes."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._lock = threading.RLock()
        self._view: GraphView | None = None
        self._facts: Facts | None = None
        self._excluded: frozenset[str] = frozenset()
        self._regions: Regions | None = None

    def facts(self, view: GraphView) -> Facts:
        """Facts of `view`; seconds for graphs of ten thousands of ops, the first time."""
        if self._facts is None or self._view is not view:
            self._view, self._regions = view, None
            self._facts = Facts(view, static_shapes(self._mirror.user_graph))
        return self._facts

    def regions(self, view: GraphView, excluded: Collection[str]) -> Regions:
        """The regions that can be split on the batch axis."""
        facts = self.facts(view)
        if self._regions is None or self._excluded != excluded:
            self._excluded = frozenset(excluded)
            self._regions = batch_regions(facts, self._excluded)
        return self._regions

    def offered(self, view: GraphView, classes: Classes) -> tuple[SplitOffer, ...]:
        """What planners may choose from. A graph that a rule trips over has nothing to offer; placement goes on without."""
        excluded = frozenset(classes.pinned)
        try:
            with self._lock:
                return tuple(offers(self.facts(view), self.regions(view, excluded), excluded))
        except Exception:  # placement goes on without
            log.exception("no splits are offered for a graph of %d ops (STEPD_SPLITS)", len(view.nodes))
            return ()

    def resolve(
        self, strategy: LiveStrategy, view: GraphView, classes: Classes, devices: Devices
    ) -> tuple[Mapping[str, Chosen], tuple[NotHonoured, ...]]:
        """(what is split, what is not and why) of a strategy."""
        if not strategy.splits and not strategy.replicate:
            return {}, ()
        excluded = frozenset(classes.pinned)
        with self._lock:
            facts = self.facts(view)
            ways = self.regions(view, excluded).ways
        splits = {split.op: split for split in (*self._everything(strategy, ways, devices), *strategy.splits)}
        refused = {name: why for name in splits if (why := _obstacle(splits[name], view, classes, devices))}
        chosen, why_not = choose(facts, [split for name, split in splits.items() if name not in refused], ways)
        asked = {split.op for split in strategy.splits}
        return chosen, tuple(_missed(splits[n], why) for n, why in {**refused, **why_not}.items() if n in asked)

    def fed_apart(self, chosen: Mapping[str, Chosen], view: GraphView, classes: Classes) -> dict[str, str]:
        """Where else than at home what is fed and cut comes in, on local workers: in the training process."""
        placer = self._mirror.placer
        if placer is None or not chosen:
            return {}
        with self._lock:
            return fed_at(self.facts(view), chosen, placer.trainer, classes.held, classes.group_of)

    def _everything(self, strategy: LiveStrategy, ways: Mapping[str, tuple[Way, int]], devices: Devices) -> list[Split]:
        """What `replicate` means: all regions, one part a device, sums by a tree of their names."""
        names = devices.peers
        if not strategy.replicate or len(names) < 2:
            return []
        tree = by_names(names)
        return [Split(name, BATCH, len(names), names, (), tree if way.adds else ()) for name, (way, _) in ways.items()]


def _obstacle(split: Split, view: GraphView, classes: Classes, devices: Devices) -> str:
    node = view.nodes.get(split.op)
    if node is None:
        return "it is not in the graph"
    if split.op in classes.pinned:
        return f"it stays as it is: {classes.pinned[split.op]}"
    wrong = next((d for d in split.devices if d not in allowed(view, devices, node)), None)
    return f"it cannot run on {wrong}" if wrong is not None else ""


def _missed(split: Split, why: str) -> NotHonoured:
    return NotHonoured(split.op, f"{split.parts} parts on {split.axis}", f"whole: {why}")
