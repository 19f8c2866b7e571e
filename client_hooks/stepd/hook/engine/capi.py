"""Every private TensorFlow name that the engine touches (those that change a node: `edits.py`), and which of them must be there, so
that a new TensorFlow is checked in one place.

Thin: values in, values out. It must not know strategies, sessions' state or observers.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.client import session as session_lib
from tensorflow.python.framework import ops

from stepd.hook.engine.staying import sessions_stay

_NEEDED_C = (
    "ClearAttr",
    "ExtendSession",
    "SetAttr",
    "TF_CloseSession",
    "TF_DeleteBuffer",
    "TF_DeleteImportGraphDefOptions",
    "TF_DeleteImportGraphDefResults",
    "TF_DeleteSession",
    "TF_DeleteSessionOptions",
    "TF_GetBuffer",
    "TF_GraphImportGraphDefWithResults",
    "TF_GraphNextOperation",
    "TF_GraphToGraphDef",
    "TF_ImportGraphDefOptionsAddInputMapping",
    "TF_ImportGraphDefOptionsAddReturnOperation",
    "TF_ImportGraphDefOptionsRemapControlDependency",
    "TF_ImportGraphDefOptionsSetValidateColocationConstraints",
    "TF_ImportGraphDefResultsReturnOperations",
    "TF_NewBuffer",
    "TF_NewBufferFromString",
    "TF_NewImportGraphDefOptions",
    "TF_NewSessionOptions",
    "TF_NewSessionRef",
    "TF_OperationName",
    "TF_OperationToNodeDef",
    "TF_Output",
    "TF_SessionListDevices",
    "TF_SessionMakeCallable",
    "TF_SessionPRunSetup_wrapper",
    "TF_SessionPRun_wrapper",
    "TF_SessionReleaseCallable",
    "TF_SessionRunCallable",
    "TF_SessionRun_wrapper",
    "_TF_SetConfig",
    "_TF_SetTarget",
)
_NEEDED_SESSION = (
    "__init__",
    "_call_tf_sessionprun",
    "_call_tf_sessionrun",
    "_extend_graph",
    "_make_callable_from_options",
    "_Callable",
    "close",
)
_NEEDED_GRAPH = ("_session_run_lock", "get_operations", "version", "graph_def_versions")

c: Any = pywrap_tf_session
BaseSession: Any = session_lib.BaseSession
Output: Any = c.TF_Output
run_session: Any = c.TF_SessionRun_wrapper
prun_session: Any = c.TF_SessionPRun_wrapper
prun_setup: Any = c.TF_SessionPRunSetup_wrapper
make_callable: Any = c.TF_SessionMakeCallable
run_callable: Any = c.TF_SessionRunCallable
release_callable: Any = c.TF_SessionReleaseCallable
get_buffer: Any = c.TF_GetBuffer
# What TF_GetBuffer gives for a buffer in place of what TensorFlow wrote into it.
repaired_buffers: dict[Any, bytes] = {}
_new_session: Any = c.TF_NewSessionRef
close_session: Any = c.TF_CloseSession
list_session_devices: Any = c.TF_SessionListDevices
extend_session: Any = c.ExtendSession
delete_buffer: Any = c.TF_DeleteBuffer


def missing() -> tuple[str, ...]:
    """Names that this TensorFlow lacks; empty when the engine can work with it."""
    lacks = [f"pywrap_tf_session.{name}" for name in _NEEDED_C if not hasattr(c, name)]
    lacks += [f"BaseSession.{name}" for name in _NEEDED_SESSION if not hasattr(BaseSession, name)]
    lacks += [f"Graph.{name}" for name in _NEEDED_GRAPH if not hasattr(ops.Graph, name)]
    if not (hasattr(c, "PyGraph") or hasattr(c, "TF_NewGraph")):
        lacks.append("pywrap_tf_session.PyGraph")
    return tuple(lacks)


class Graph:
    """A C graph of the hook's own.

    Not a `tf.Graph`: making one of those draws from the counter that numbers the user's functions, and the program could tell.
    """

    def __init__(self) -> None:
        if hasattr(c, "PyGraph"):
            self._scoped: Any = None
            self._graph: Any = c.PyGraph()
        else:  # TensorFlow 2.12: a plain TF_Graph that is deleted by its scope
            from tensorflow.python.framework import c_api_util

            self._scoped = c_api_util.ScopedTFGraph("stepd")
            with self._scoped.get() as graph:
                self._graph = graph
            c.SetRequireShapeInferenceFns(self._graph, False)

    @property
    def handle(self) -> Any:
        return self._graph


@contextlib.contextmanager
def buffer(data: bytes | None = None) -> Iterator[Any]:
    """A TF_Buffer that holds `data`, deleted at the end of the block."""
    made = c.TF_NewBuffer() if data is None else c.TF_NewBufferFromString(data)
    try:
        yield made
    finally:
        c.TF_DeleteBuffer(made)


def buffer_bytes(buf: Any) -> bytes:
    return bytes(get_buffer(buf))


def graph_bytes(graph: Any) -> bytes:
    """The serialized GraphDef of a `tf.Graph`; library and versions included."""
    with graph._c_graph.get() as handle, buffer() as buf:
        c.TF_GraphToGraphDef(handle, buf)
        return buffer_bytes(buf)


def node_def_bytes(operation: Any) -> bytes:
    """The serialized NodeDef of a C operation as it is now."""
    with buffer() as buf:
        c.TF_OperationToNodeDef(operation, buf)
        return buffer_bytes(buf)


def output(operation: Any, index: int) -> Any:
    made = Output()
    made.oper = operation
    made.index = index
    return made


def op_name(operation: Any) -> str:
    name: str = c.TF_OperationName(operation)
    return name


def output_name(out: Any) -> str:
    return f"{c.TF_OperationName(out.oper)}:{out.index}"


def import_graph_def(
    graph: Graph,
    graph_def: bytes,
    tensors: Mapping[tuple[str, int], Any] | None = None,
    controls: Mapping[str, Any] | None = None,
    wanted: Sequence[str] = (),
) -> list[Any]:
    """Add the nodes of `graph_def` to `graph` under their own names; returns the C operations of the names in `wanted`.

    `tensors` maps (name, output) to a TF_Output and `controls` maps a name to a TF_Operation that exists already; only their
    names are used by TensorFlow, so that those of another graph serve as well. Raises what TensorFlow raises; the graph is
    then as before.
    """
    options = c.TF_NewImportGraphDefOptions()
    results = None
    try:
        c.TF_ImportGraphDefOptionsSetValidateColocationConstraints(options, 0)
        for (name, index), out in (tensors or {}).items():
            c.TF_ImportGraphDefOptionsAddInputMapping(options, name, index, out)
        for name, operation in (controls or {}).items():
            c.TF_ImportGraphDefOptionsRemapControlDependency(options, name, operation)
        for name in wanted:
            c.TF_ImportGraphDefOptionsAddReturnOperation(options, name)
        with buffer(graph_def) as buf:
            results = c.TF_GraphImportGraphDefWithResults(graph.handle, buf, options)
        return list(c.TF_ImportGraphDefResultsReturnOperations(results)) if wanted else []
    finally:
        if results is not None:
            c.TF_DeleteImportGraphDefResults(results)
        c.TF_DeleteImportGraphDefOptions(options)


def new_session(graph: Any, target: bytes | None, config: Any) -> Any:
    """A TF_Session on a C graph handle."""
    options = c.TF_NewSessionOptions(target=target, config=config)
    try:
        return _new_session(graph, options)
    finally:
        c.TF_DeleteSessionOptions(options)


def try_session(graph: Any) -> None:
    """Raise what TensorFlow raises when a session takes the C graph `graph`; nothing is left behind."""
    session = new_session(graph, None, config_pb2.ConfigProto())
    try:
        extend_session(session)
    finally:
        delete_session(session)


def set_session_options(options: Any, target: bytes | None, config: Any | None) -> None:
    """Override the target or the ConfigProto inside TF_SessionOptions that somebody else made."""
    if target is not None:
        c._TF_SetTarget(options, target)
    if config is not None:
        c._TF_SetConfig(options, config.SerializeToString())


def delete_session(session: Any) -> None:
    with sessions_stay:
        close_session(session)  # TensorFlow's reset does not know it any more
    c.TF_DeleteSession(session)


def give_memory_back() -> None:
    """Have the C library return what was freed to the system, where it can be told to."""
    trim = _trim()
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Any:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def list_devices(session: Any) -> list[tuple[str, str, int]]:
    """(name, type, memory in bytes) of the session's devices."""
    raw = list_session_devices(session)
    try:
        return [
            (c.TF_DeviceListName(raw, i), c.TF_DeviceListType(raw, i), c.TF_DeviceListMemoryBytes(raw, i))
            for i in range(c.TF_DeviceListCount(raw))
        ]
    finally:
        c.TF_DeleteDeviceList(raw)


def set_incarnation(device: Any, number: int) -> None:
    """Of what `BaseSession.list_devices` has returned."""
    device._incarnation = number


def function_names(graph: Any) -> tuple[int, str]:
    """A cheap token that changes when the graph's function library grows."""
    functions = graph._functions
    return len(functions), next(reversed(functions), "") if functions else ""


def kernel_defs(op_type: str) -> list[Any]:
    """KernelDefs registered for an op type."""
    from tensorflow.core.framework import kernel_def_pb2

    buf = c.TF_GetRegisteredKernelsForOp(op_type)
    try:
        return list(kernel_def_pb2.KernelList.FromString(buffer_bytes(buf)).kernel)
    finally:
        c.TF_DeleteBuffer(buf)


def graph_handle_bytes(handle: Any) -> bytes:
    """The serialized GraphDef of a C graph handle."""
    with buffer() as buf:
        c.TF_GraphToGraphDef(handle, buf)
        return buffer_bytes(buf)


def run_own(session: Any, feeds: Mapping[Any, Any], fetches: list[Any], targets: list[Any]) -> Any:
    """A run of the hook's own, which the time limit in the session's config is not meant for."""
    with buffer(_NO_TIME_LIMIT) as options:
        return run_session(session, options, dict(feeds), fetches, targets, None)


NO_TIME_LIMIT_MS = 1 << 36
_NO_TIME_LIMIT = config_pb2.RunOptions(timeout_in_ms=NO_TIME_LIMIT_MS).SerializeToString()


def build_executors(session: Any, feeds: Sequence[Any], fetches: list[Any], targets: list[Any]) -> None:
    """Have a direct session build and keep what it needs to run this step, without running any of it.

    The run asks for a thread pool that does not exist; TensorFlow looks at that after it has built the executors. Only for
    direct sessions: a remote master ignores the field and would run the step.
    """
    import numpy as np
    from tensorflow.python.framework import errors

    with buffer(_NO_SUCH_POOL) as options, contextlib.suppress(errors.InvalidArgumentError):
        run_session(session, options, {t: np.zeros((), np.int32) for t in feeds}, fetches, targets, None)


_NO_SUCH_POOL = config_pb2.RunOptions(inter_op_thread_pool=1 << 20).SerializeToString()
