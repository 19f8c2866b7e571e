"""Whether a step on a copy computes the very bits that it computes plainly: asks Grappler what it makes of both, and compares.

Which ops Grappler rewrites, and how, hangs on where they and their neighbours lie. The rules of `groups` keep together what it is
known to rewrite; this is the proof, for a step and a copy, that nothing else is lost. A copy of which it fails is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import capi, names, session_config
from stepd.hook.engine.ballast import Made
from stepd.hook.engine.graphview import GraphView, split_input
from stepd.hook.engine.grappler import Grappler, keep_groups
from stepd.hook.engine.kinds import Kind, Route
from stepd.hook.engine.step_graph import Place, StepGraph, of_op, step_graph, with_stand_ins
from stepd.hook.engine.value_numbers import Numbers, numbered
from stepd.hook.log import logger as log
from stepd.hook.ports import StepKind

# Of a graph that is looked at, whose constants would be copied several times.
_MOST_BYTES = 128 << 20
# What Grappler says where it has made a cycle itself and stopped half-way: which half is done hangs on all that is there.
_IN_CIRCLES = "couldn't be sorted in topological order"
_INLINED = re.compile(r"/_\d+(?=/|$)")


class _Plain(NamedTuple):
    """What a step computes plainly. `numbers`: of all its ops."""

    fetched: Mapping[str, bytes]
    effects: tuple[bytes, ...]
    numbers: frozenset[bytes]


class Likeness:
    """What the steps of one session's program compute."""

    def __init__(self, config: Any, devices: Mapping[str, str]) -> None:
        """`config`: the session's, None if it has none; `devices`: full name -> type, of all that it has."""
        self._smallest = session_config.smallest(config)
        self._config = config_pb2.ConfigProto()
        if config is not None:
            self._config.CopyFrom(config)
        self._prunes_first = self._config.graph_options.place_pruned_graph
        # In a session all ops of the graph count, here those of the step.
        self._config.graph_options.rewrite_options.min_graph_nodes = -1
        self._grappler = Grappler(self._config, devices)
        self._version = 0  # of the program's graph, in which steps compute so plainly:
        self._plain: dict[StepKind, _Plain] = {}

    def difference(
        self, view: GraphView, version: int, kind: Kind, route: Route, made: Made, graph: bytes, aliases: Mapping[str, str]
    ) -> str:
        """An op of the step `kind` that computes something else on a copy, which is `made` of these and reached by `route`; "" if
        none does, or if Grappler cannot be asked. `version`: of the program's graph, which is the `view`; `graph`: the session's;
        `aliases`: the program's ops of another name in it."""
        left_alone = self._config.graph_options.rewrite_options.disable_meta_optimizer or len(view.nodes) < self._smallest
        if left_alone or len(graph) > _MOST_BYTES:
            return ""
        if self._version != version:
            self._version, self._plain = version, {}
        try:
            return self._difference(view, kind, route, made, graph_pb2.GraphDef.FromString(graph), aliases)
        except Exception as e:
            if _IN_CIRCLES in str(e):
                return split_input((*kind.step.fetches, *kind.step.targets)[0])[0]
            log.debug("what Grappler makes of a step is not known: %s", e)
            return ""

    def _difference(
        self, view: GraphView, kind: Kind, route: Route, made: Made, graph: graph_pb2.GraphDef, aliases: Mapping[str, str]
    ) -> str:
        users = {here: name for name, here in aliases.items()}
        known = self._plain
        plain = known.get(kind.step)
        if plain is None:
            plain = known[kind.step] = self._plainly(view, kind.step, made, graph, aliases)
        whose = users | {here: name for name, here in made.names.items()}

        def user_name(name: str) -> str:
            return whose.get(name) or self._anywhere(names.user_text(name, users))

        def device(name: str) -> str:
            user = whose.get(name, name)
            return made.device(user) if user in view.nodes else ""

        fetches = {capi.output_name(user): _place(here) for user, here in zip(kind.fetches, route.fetches, strict=True)}
        targets = [capi.op_name(operation) for operation in route.targets]
        part = step_graph(graph, fetches.values(), targets, {_place(here) for here in route.feeds.values()})
        left = self._left(part, device)
        found = numbered(left, with_stand_ins(user_name))
        for user, here in fetches.items():
            if found.value(*part.place(here)) != plain.fetched[user]:
                return _first_other(left, found, plain.numbers, user_name) or split_input(user)[0]
        if found.effects != plain.effects:
            return _first_other(left, found, plain.numbers, user_name) or "what it writes"
        return ""

    def _plainly(
        self, view: GraphView, step: StepKind, made: Made, graph: graph_pb2.GraphDef, aliases: Mapping[str, str]
    ) -> _Plain:
        users = {here: name for name, here in aliases.items()}

        def place(name: str) -> Place:
            op, index = split_input(name)
            return aliases.get(op, op), index

        fetches = {name: place(name) for name in step.fetches}
        targets = [aliases.get(name, name) for name in step.targets]
        part = step_graph(graph, fetches.values(), targets, set(map(place, step.feeds)))

        def user_name(name: str) -> str:
            return self._anywhere(users.get(name, name))

        def device(name: str) -> str:
            user = users.get(name, name)
            return made.home(user) if user in view.nodes else ""

        found = numbered(self._left(part, device), with_stand_ins(user_name))
        fetched = {name: found.value(*part.place(here)) for name, here in fetches.items()}
        return _Plain(fetched, found.effects, frozenset(found.of.values()))

    def _anywhere(self, name: str) -> str:
        """The name of an op without the numbers of the calls that were put inline. A session numbers those of its whole graph, in
        which copies come last, so that the program's own keep theirs, and their random streams; here only a step's are there."""
        return name if self._prunes_first else _INLINED.sub("", name)

    def _left(self, part: StepGraph, device: Callable[[str], str]) -> graph_pb2.GraphDef:
        """What Grappler leaves of a step."""
        for node in part.graph.node:
            node.device = device(of_op(node.name)) or node.device
        return self._grappler.optimized(keep_groups(part.graph), part.ends)


def _place(output: Any) -> Place:
    return split_input(capi.output_name(output))


def _first_other(graph: graph_pb2.GraphDef, found: Numbers, known: Collection[bytes], user_name: Callable[[str], str]) -> str:
    """An op that computes what plainly none does, of values that are computed plainly."""
    for node in graph.node:
        number = found.of.get(node.name)
        sources = [found.handed_on.get(each, each)[0] for each in map(split_input, node.input) if each[1] >= 0]
        if number is not None and number not in known and sources and all(found.of.get(name) in known for name in sources):
            return user_name(of_op(node.name))
    return ""
