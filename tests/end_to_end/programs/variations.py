"""How else the same programs can run: what the environment asks for, done to TensorFlow before a program begins.

Plain runs are varied alike, so that a variation is one more set of programs. It knows no stepd.

| variable | what is other |
|---|---|
| FIDELITY_V2 | all that TensorFlow 2 does otherwise, but eager execution, stays as it is there: control flow, resource variables, shapes |
| FIDELITY_UNKNOWN_BATCH | placeholders do not know the first of their sizes |
| FIDELITY_COLOCATED | gradients lie with the ops that they are of |
| FIDELITY_CONFIG=TEXT | a ConfigProto, of which every session is asked for what the program does not ask for itself |
| FIDELITY_PEEK=SEED | a run fetches two more values, drawn from all that it computes |
| FIDELITY_GROW=SEED | as peek, but through new ops, gradients among them: the graph grows between the first runs of a session |
| FIDELITY_PLACED=SEED | ops that say no device are asked to lie on one of two CPU devices, drawn by their names or, odd seeds, by their scopes |
| FIDELITY_SERVER | a session is one of a server of its own in this process, with three CPU devices |
| FIDELITY_CALLABLES | a run is a callable made with CallableOptions, where it can be one |
| FIDELITY_PARTS | each third run is a partial run in two parts, where it can be one; ops that are run are waited for by a new constant |
| FIDELITY_THREADS | a run has a thread of its own |
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from peeks import Peeks
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session
from tensorflow.python.framework import ops

peeks = Peeks()


def vary() -> None:
    """What the environment asks for."""
    asked = os.environ.get
    if asked("FIDELITY_V2"):
        tf.disable_eager_execution()
    else:
        tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    if asked("FIDELITY_UNKNOWN_BATCH"):
        forget_batches()
    if asked("FIDELITY_COLOCATED"):
        colocate_gradients()
    if asked("FIDELITY_PLACED"):
        place(int(asked("FIDELITY_PLACED", "")))
        configure('device_count{key:"CPU" value:2} allow_soft_placement:true')
    if asked("FIDELITY_CONFIG"):
        configure(asked("FIDELITY_CONFIG", ""))
    if asked("FIDELITY_SERVER"):
        serve()
    if asked("FIDELITY_CALLABLES"):
        session.BaseSession.run = by_callables(session.BaseSession.run)
    if asked("FIDELITY_PARTS"):
        session.BaseSession.run = in_parts(session.BaseSession.run)
    if asked("FIDELITY_PEEK") or asked("FIDELITY_GROW"):
        seed = asked("FIDELITY_GROW") or asked("FIDELITY_PEEK")
        session.BaseSession.run = peeks.of(session.BaseSession.run, str(seed), bool(asked("FIDELITY_GROW")))
    if asked("FIDELITY_THREADS"):
        session.BaseSession.run = on_threads(session.BaseSession.run)


def forget_batches() -> None:
    known = tf.placeholder

    def placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> Any:
        sizes = None if shape is None else tf.TensorShape(shape).as_list() if tf.TensorShape(shape).ndims is not None else None
        return known(dtype, [None, *sizes[1:]] if sizes else shape, name)

    tf.placeholder = placeholder


def colocate_gradients() -> None:
    """Have all gradients lie with the ops that they are of, as those of TensorFlow 2's `tf.gradients` do."""
    from tensorflow.python.ops import gradients_util

    known = gradients_util._GradientsHelper

    def helper(
        ys: Any, xs: Any, grad_ys: Any = None, name: str = "gradients", colocate: bool = False, *args: Any, **more: Any
    ) -> Any:
        more.pop("colocate_gradients_with_ops", None)
        return known(ys, xs, grad_ys, name, True, *args, **more)

    gradients_util._GradientsHelper = helper


def configure(text: str) -> None:
    """Have sessions ask for what the ConfigProto `text` asks for, where the program does not say otherwise."""
    from google.protobuf import text_format

    asked, known = text_format.Parse(text, tf.ConfigProto()), session.BaseSession.__init__

    def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        both = tf.ConfigProto()
        both.CopyFrom(asked)
        if config is not None:
            both.MergeFrom(config)
        known(self, target, graph, both)

    session.BaseSession.__init__ = init


def place(seed: int) -> None:
    """Have ops say a device as they are made; those that take a variable, and those of functions, are left alone."""
    known = ops.Graph._apply_device_functions

    def apply(self: Any, op: Any) -> None:
        known(self, op)
        if op.device or self.building_function or any(t.dtype._is_ref_dtype or t.dtype == tf.resource for t in op.inputs):
            return
        part = "/".join(op.name.split("/")[:2]) if seed % 2 else op.name
        op._set_device(f"/device:CPU:{zlib.crc32(f'{seed} {part}'.encode()) % 2}")

    ops.Graph._apply_device_functions = apply


def serve() -> None:
    """Have sessions that name no target be those of a server, which lives as long as they do."""
    known = session.BaseSession.__init__

    def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        if not target:
            wanted = tf.ConfigProto()
            wanted.CopyFrom(config or wanted)
            wanted.device_count["CPU"] = max(3, wanted.device_count["CPU"])
            self._own_server = tf.train.Server.create_local_server(wanted)
            target = self._own_server.target
        known(self, target, graph, config)

    session.BaseSession.__init__ = init


def by_callables(known: Callable[..., Any]) -> Callable[..., Any]:
    """Run by a callable for each set of feeds and fetches, kept with the session; what a callable cannot do, or is asked wrongly, as it is."""

    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        asked = (
            None if options or run_metadata or self._closed or self.graph.version == 0 else as_callable(self, fetches, feed_dict)
        )
        if asked is None:
            return known(self, fetches, feed_dict, options, run_metadata)
        handler, wanted, values = asked
        kept = self.__dict__.setdefault("_kept_callables", {})
        key = wanted.SerializeToString(deterministic=True)
        if key not in kept:
            kept[key] = self._make_callable_from_options(wanted)
        return handler.build_results(self, kept[key](*values))

    return run


def as_callable(self: Any, fetches: Any, feed_dict: Any) -> tuple[Any, config_pb2.CallableOptions, list[np.ndarray]] | None:
    """What builds the results, the options and the fed values, or None where it is no plain run of arrays."""
    fed: dict[Any, np.ndarray] = {}
    try:
        for key, value in (feed_dict or {}).items():
            tensor = self.graph.as_graph_element(key, allow_operation=False)
            array = np.asarray(value, tensor.dtype.as_numpy_dtype)
            if (
                not isinstance(tensor, tf.Tensor)
                or not tensor.shape.is_compatible_with(array.shape)
                or not self.graph.is_feedable(tensor)
            ):
                return None
            fed[tensor.ref()] = array
        handler = session._FetchHandler(self.graph, fetches, fed)
    except Exception:  # the plain run says what is wrong
        return None
    if handler._fetch_handles:
        return None
    wanted = config_pb2.CallableOptions()
    wanted.feed.extend(ref.deref().name for ref in fed)
    wanted.fetch.extend(tensor.name for tensor in handler.fetches())
    wanted.target.extend(op.name for op in handler.targets())
    return handler, wanted, list(fed.values())


def in_parts(known: Callable[..., Any]) -> Callable[..., Any]:
    """Run each third in two parts, the second of which feeds nothing; what cannot be run so, or is asked wrongly, as it is."""

    def run(self: Any, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None) -> Any:
        number = self.__dict__["_parts_number"] = self.__dict__.get("_parts_number", 0) + 1
        plain = number % 3 or options or run_metadata or self._closed or self.graph.version == 0
        asked = None if plain else as_callable(self, fetches, feed_dict)
        if asked is None or (asked[1].target and self.graph.finalized):
            return known(self, fetches, feed_dict, options, run_metadata)
        handler, wanted, values = asked
        parts = list(dict.fromkeys(wanted.fetch))
        if wanted.target:
            parts.append(waited_for(self, wanted))
        if len(parts) == 0 or set(parts) & set(wanted.feed):
            return known(self, fetches, feed_dict, options, run_metadata)
        handle = self.partial_run_setup([*parts, *wanted.target], list(wanted.feed))
        half = (len(parts) + 1) // 2
        got = dict(
            zip(parts[:half], self.partial_run(handle, parts[:half], dict(zip(wanted.feed, values, strict=True))), strict=True)
        )
        if parts[half:]:
            got |= zip(parts[half:], self.partial_run(handle, parts[half:]), strict=True)
        return handler.build_results(self, [got[name] for name in wanted.fetch])

    return run


def waited_for(self: Any, wanted: config_pb2.CallableOptions) -> str:
    """A tensor that is there when the ops that are run have ended: a partial run waits for nothing else."""
    kept = self.__dict__.setdefault("_kept_ends", {})
    ops = tuple(wanted.target)
    if ops not in kept:
        with self.graph.as_default(), tf.device(None), tf.control_dependencies(None), tf.name_scope(None):
            with tf.control_dependencies([self.graph.get_operation_by_name(name) for name in ops]):
                kept[ops] = tf.constant(0).name
    return kept[ops]


def on_threads(known: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> Any:
        result: list[Any] = []
        raised: list[BaseException] = []

        def work() -> None:
            try:
                result.append(known(*args, **named))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]
        return result[0]

    return run
