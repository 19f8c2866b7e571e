"""The numbers of bodies in the names that errors say, as the program would see them plainly.

Where a session takes a graph, TensorFlow puts the bodies of loops and conditions of the second generation in the place of their
ops, and numbers them by one counter of the whole graph (`loop/body/_17/MatMul`); copies count, too. So a session that nobody hears
of takes the program's graph alone, and tells what it has made of such an op. Nothing runs there: the op is given dead values. It
must not know which step has failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tensorflow.core.framework import graph_pb2, types_pb2
from tensorflow.core.protobuf import config_pb2

from stepd.hook.engine import capi, op_defs, rules
from stepd.hook.engine.state import Carrier
from stepd.hook.log import logger as log

_NODE = re.compile(r"(?<=\{\{node )\S+(?=\}\})")
_NUMBER = re.compile(r"(?<=/_)\d+(?=/|\Z)")
_OPTIONS = config_pb2.RunOptions(output_partition_graphs=True, timeout_in_ms=capi.NO_TIME_LIMIT_MS).SerializeToString()


class BodyNumbers:
    """Of one session."""

    def __init__(self) -> None:
        # (ops of the graph, name of one) -> what it is made into, by how the names begin: without numbers -> with them.
        self._known: dict[tuple[int, str], dict[str, str]] = {}

    def plain_text(self, text: str, graph: Any, size: int) -> str:
        """The text of an error, of a step that was built when the program's `graph` had `size` ops, with plain numbers. What is not
        known stays as it is."""

        def name(found: re.Match[str]) -> str:
            return self._plain(found[0], graph, size) if _NUMBER.search(found[0]) else found[0]

        return _NODE.sub(name, text)

    def _plain(self, name: str, graph: Any, size: int) -> str:
        scopes = name[: name.index("/_")].split("/")
        for root in ("/".join(scopes[:k]) for k in range(1, len(scopes) + 1)):
            if (size, root) not in self._known:
                self._known[size, root] = _made_of(graph, size, root)
            known = self._known[size, root]
            for end in sorted((found.end() for found in _NUMBER.finditer(name)), reverse=True):
                begin = known.get(_NUMBER.sub("", name[:end]))
                if begin is not None:
                    return begin + name[end:]
        return name


def _made_of(graph: Any, size: int, name: str) -> dict[str, str]:
    """What a session makes of an op; nothing where it is no call, loop or condition."""
    try:
        node = graph.get_operation_by_name(name).node_def
        if "_lower_using_switch_merge" not in node.attr and node.op not in rules.INLINED:
            return {}
        whole = graph_pb2.GraphDef.FromString(capi.graph_bytes(graph))
        del whole.node[size:]
        return _begins(_told(whole, name))
    except Exception as e:  # the program has an error already
        log.debug("what TensorFlow plainly makes of %s is not known: %s", name, e)
        return {}


def _begins(names: Iterable[str]) -> dict[str, str]:
    """How names begin, up to a number: without numbers -> with them. If there is one such."""
    found: dict[str, set[str]] = {}
    for name in (name.removeprefix("Func/") for name in names):  # before what stands for a call itself
        for number in _NUMBER.finditer(name):
            found.setdefault(_NUMBER.sub("", name[: number.end()]), set()).add(name[: number.end()])
    return {words: next(iter(begins)) for words, begins in found.items() if len(begins) == 1}


def _told(whole: Any, name: str) -> list[str]:
    """The names of all that a session would run in the place of the op `name` of a graph, and beside it."""
    node = next(node for node in whole.node if node.name == name)
    # First in the graph: TensorFlow takes first what is first of what has its inputs, and numbers in this order.
    carrier = Carrier("stepd_dead")
    never = carrier.node("never", "Const", [], dtype=types_pb2.DT_BOOL)
    never.attr["value"].tensor.dtype = types_pb2.DT_BOOL
    never.attr["value"].tensor.bool_val.append(False)
    switch = carrier.node("switch", "Switch", [never.name, never.name], T=types_pb2.DT_BOOL)
    dead = carrier.node("dead", "Identity", [f"{switch.name}:1"], T=types_pb2.DT_BOOL).name
    types = op_defs.input_types(node)
    given = {dtype: carrier.node(f"of_{dtype}", "Placeholder", [f"^{dead}"], dtype=dtype).name for dtype in {*types}}
    controls = [f"^{dead}"] if any(source.startswith("^") for source in node.input) or not types else []
    del node.input[:]
    node.input.extend([*(given[dtype] for dtype in types), *controls])
    for each in whole.node:
        each.device = ""
        each.attr.pop("_class", None)
    carrier.graph.library.CopyFrom(whole.library)
    carrier.graph.versions.CopyFrom(whole.versions)
    carrier.graph.node.extend(whole.node)
    after = carrier.node("after", "NoOp", [f"^{name}"]).name
    return [each.name for part in _partitions(carrier.graph, after) for each in part.node]


def _partitions(graph_def: Any, target: str) -> Iterable[Any]:
    """The graphs that a session runs for a target."""
    config = config_pb2.ConfigProto(device_count={"CPU": 1, "GPU": 0}, inter_op_parallelism_threads=1, use_per_session_threads=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    graph = capi.Graph()
    targets = capi.import_graph_def(graph, graph_def.SerializeToString(), wanted=[target])
    session = capi.new_session(graph.handle, None, config)
    try:
        capi.extend_session(session)
        with capi.buffer(_OPTIONS) as options, capi.buffer() as metadata:
            capi.run_session(session, options, {}, [], targets, metadata)
            return list(config_pb2.RunMetadata.FromString(capi.buffer_bytes(metadata)).partition_graphs)
    finally:
        capi.delete_session(session)
