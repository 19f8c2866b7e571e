"""What Grappler makes of a part of a graph, as a session would have it. It must not know steps, copies or strategies."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, device_properties_pb2, meta_graph_pb2
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig
from tensorflow.python.framework import config as tf_config
from tensorflow.python.grappler import cluster, tf_optimizer

from stepd.hook.engine import names, op_defs
from stepd.hook.engine.graphview import split_input

# In the order in which they run. Calls are put inline between the first and the second; the third run once only.
_BEFORE = ("implementation_selector", "function_optimization")
_BEHIND = (
    "common_subgraph_elimination", "constant_folding", "shape_optimization", "arithmetic_optimization", "remapping",
    "dependency_optimization",
)  # fmt: skip
_ONCE = ("layout_optimizer", "loop_optimization")
_SORTS = "disable_tfg_optimizer"  # what sorts ops before all others; TensorFlow 2.12 has none


class Grappler:
    """Grappler as a session of one config and these devices asks it."""

    def __init__(self, config: config_pb2.ConfigProto, devices: Mapping[str, str]) -> None:
        """`devices`: full name -> type, of all that the session has."""
        self._config = config
        self._devices = [_named(name, kind) for name, kind in devices.items()]

    def optimized(self, graph: graph_pb2.GraphDef, ends: Collection[str]) -> graph_pb2.GraphDef:
        """`graph`, all of which the ops `ends` need, as Grappler would leave it. Raises what TensorFlow does."""
        if not self._is_usual() or not any(map(_calls, graph.node)):
            return self._run(self._config, graph, ends)
        for stage in _stages(self._config):
            graph = keep_groups(_with_devices(self._run(stage, graph, ends)))
        return graph

    def _run(self, config: config_pb2.ConfigProto, graph: graph_pb2.GraphDef, ends: Collection[str]) -> graph_pb2.GraphDef:
        meta = meta_graph_pb2.MetaGraphDef(graph_def=graph)
        meta.collection_def["train_op"].node_list.value.extend(sorted(ends))
        return tf_optimizer.OptimizeGraph(config, meta, verbose=False, cluster=cluster.Cluster(devices=self._devices))

    def _is_usual(self) -> bool:
        """Do all passes run that run if a program does not choose them itself, and no others?"""
        asked = self._config.graph_options.rewrite_options
        chosen = {field.name for field, _ in asked.ListFields()}
        return chosen <= {"min_graph_nodes", "disable_meta_optimizer", *_BEFORE, *_BEHIND, *_ONCE}


def keep_groups(graph: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """Have Grappler see which ops are to lie together, by which ops that are equal otherwise differ. As Python can ask it, it
    forgets that."""
    for node in graph.node:
        if names.COLOCATION in node.attr:
            node.attr[names.LEFT].CopyFrom(node.attr[names.COLOCATION])
    return graph


def _stages(config: config_pb2.ConfigProto) -> Sequence[config_pb2.ConfigProto]:
    """Configs that do, one after the other, what `config` does in one go.

    When calls are put inline a session knows its devices, and has what hands values into a function and out of it lie with what
    makes these. Grappler as Python can ask it knows none: what hands on lies nowhere then, and constants do not pass it. So it
    stops there for the devices to be filled in.
    """
    inline, first, second = (type(config)() for _ in range(3))
    for made in (inline, first, second):
        made.CopyFrom(config)
        made.graph_options.rewrite_options.meta_optimizer_iterations = RewriterConfig.ONE
    _leave_out(inline, *_BEHIND, *_ONCE)
    _leave_out(first, *_BEFORE)
    _leave_out(second, *_ONCE)
    for made in (inline, second):
        made.graph_options.rewrite_options.memory_optimization = RewriterConfig.NO_MEM_OPT
    first.graph_options.rewrite_options.disable_model_pruning = True
    if _SORTS in RewriterConfig.DESCRIPTOR.fields_by_name:
        setattr(first.graph_options.rewrite_options, _SORTS, True)
    return inline, first, second


def _leave_out(config: config_pb2.ConfigProto, *passes: str) -> None:
    for name in passes:
        setattr(config.graph_options.rewrite_options, name, RewriterConfig.OFF)


def _calls(node: Any) -> bool:
    return op_defs.function_attrs(node.op) != () and "Dataset" not in node.op


def _with_devices(graph: graph_pb2.GraphDef) -> graph_pb2.GraphDef:
    """What lies nowhere lies with what it is given, as far as that lies anywhere."""
    nodes = {node.name: node for node in graph.node}
    left = [node for node in graph.node if not node.device and node.input]
    while left:
        for node in left:
            source = nodes.get(split_input(node.input[0])[0])
            node.device = source.device if source else ""
        still = [node for node in left if not node.device]
        if len(still) == len(left):
            break
        left = still
    return graph


def _named(name: str, kind: str) -> device_properties_pb2.NamedDevice:
    named = device_properties_pb2.NamedDevice(name=name)
    named.properties.type = kind
    # What it estimates of these is not looked at, but without them it says on the program's stderr that it cannot.
    named.properties.num_cores, named.properties.frequency, named.properties.bandwidth = 1, 1000, 32_000_000
    if kind == "GPU":
        named.properties.environment["architecture"] = _architecture()
    return named


@functools.cache
def _architecture() -> str:
    """Of this machine's GPUs, as Grappler has it; how convolutions of half precision are laid out hangs on it."""
    gpus = tf_config.list_physical_devices("GPU")
    major, minor = tf_config.get_device_details(gpus[0]).get("compute_capability", (0, 0)) if gpus else (0, 0)
    return f"{major}.{minor}"
