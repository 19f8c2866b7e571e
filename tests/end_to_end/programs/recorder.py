"""Writes down what a program saw: values to the bit, errors to the word, files to the byte.

The room of the observer's notebook: plain TensorFlow and numpy; it knows no session but those that it is handed.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

SHORT = 96  # bytes of an array that are written out; longer ones are hashed


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def digest_meta_graph(meta: tf.MetaGraphDef) -> str:
    """The digest of a MetaGraph but for the order of the maps inside its control-flow contexts, which no two processes share."""
    for key in ("cond_context", "while_context"):
        if key in meta.collection_def:
            values = meta.collection_def[key].bytes_list.value
            values[:] = [bytes(sorted(value)) for value in values]
    return digest(meta.SerializeToString(deterministic=True))


def describe(value: Any) -> Any:
    """`value` (any nest that a run returns) as JSON in which equal means bitwise equal."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, bytes):
        return {"bytes": value.hex() if len(value) <= SHORT else digest(value)}
    if isinstance(value, (np.ndarray, np.generic)):
        return _array(value)
    if isinstance(value, dict):
        return {"dict": type(value).__name__, "items": [[str(k), describe(v)] for k, v in value.items()]}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {
            "tuple": type(value).__name__,
            "items": [[f, describe(getattr(value, f))] for f in value._fields],
        }
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [describe(v) for v in value]}
    if hasattr(value, "to_list"):  # a RaggedTensorValue
        return {type(value).__name__: describe(value.to_list())}
    return {type(value).__name__: str(value)}


def _array(value: Any) -> dict[str, Any]:
    kind = {"dtype": str(value.dtype), "shape": list(value.shape), "is": type(value).__name__}
    if value.dtype == object:
        return kind | {"items": [describe(v) for v in value.ravel().tolist()]}
    raw = np.ascontiguousarray(value).tobytes()
    if len(raw) > SHORT:
        return kind | {"sha": digest(raw), "head": raw[:16].hex()}
    return kind | {"hex": raw.hex(), "text": np.array2string(np.asarray(value), threshold=24)}


class Record:
    """The notes of one program, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.notes: list[list[Any]] = []

    def value(self, label: str, value: Any) -> None:
        self.notes.append([label, describe(value)])

    @contextlib.contextmanager
    def error(self, label: str) -> Iterator[None]:
        """Expects an exception; notes type, words, op and the frames that led to it."""
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            self.note_error(label, error)
        else:
            self.notes.append([label, "no error"])

    def note_error(self, label: str, error: BaseException) -> None:
        note: dict[str, Any] = {"type": type(error).__name__, "message": neutral(str(error))}
        for field in ("error_code", "op", "node_def"):
            if isinstance(error, tf.errors.OpError):
                got = getattr(error, field)
                note[field] = got.name if field == "op" and got is not None else str(got)
        for field in ("__cause__", "__context__"):
            note[field] = type(getattr(error, field)).__name__
        self.notes.append([label, note])
        frames = [f"{Path(f.filename).name}:{f.name}" for f in traceback.extract_tb(error.__traceback__)]
        self.notes.append([f"{label} frames", {"frames": frames}])

    def graph(self, label: str, graph: Any = None) -> None:
        """Every op's name, the exported GraphDef and the counters that name and seed the next op."""
        graph = graph or tf.get_default_graph()
        ops = graph.get_operations()
        note = {
            "ops": [op.name for op in ops],
            "ids": digest(str([op._id for op in ops]).encode()),
            "graph_def": digest(graph.as_graph_def(add_shapes=True).SerializeToString(deterministic=True)),
            "version": graph.version,
            "next_id": getattr(graph, "_last_id", None),
            "finalized": graph.finalized,
            "collections": {str(k): len(graph.get_collection_ref(k)) for k in graph.get_all_collection_keys()},
        }
        self.notes.append([label, note])

    def proto(self, label: str, message: Any) -> None:
        meta = isinstance(message, tf.MetaGraphDef)
        data = digest_meta_graph(message) if meta else digest(message.SerializeToString(deterministic=True))
        self.notes.append([label, data])

    def checkpoint(self, label: str, prefix: str) -> None:
        """Each tensor of a checkpoint, its file names and, where it has one, the exported MetaGraph."""
        reader = tf.train.NewCheckpointReader(prefix)
        tensors = {k: describe(reader.get_tensor(k)) for k in sorted(reader.get_variable_to_shape_map())}
        files = sorted(Path(p).name for p in glob.glob(prefix + ".*"))
        note: dict[str, Any] = {"tensors": tensors, "files": files}
        if os.path.exists(prefix + ".meta"):
            meta = tf.MetaGraphDef.FromString(Path(prefix + ".meta").read_bytes())
            note["meta"] = digest_meta_graph(meta)
            note["meta nodes"] = [node.name for node in meta.graph_def.node]
        self.notes.append([label, note])

    def events(self, label: str, logdir: str) -> None:
        """Every event of the event files under `logdir`, but for clocks."""
        paths = glob.glob(os.path.join(logdir, "**", "*tfevents*"), recursive=True)
        files = [[_event(event) for event in tf.train.summary_iterator(path)] for path in paths]
        self.notes.append([label, sorted(files, key=json.dumps)])  # files of one second have no order of their own

    def save(self, folder: str) -> None:
        Path(folder, self.name + ".json").write_text(json.dumps(self.notes, indent=1))


def _sorted_attributes(found: re.Match[str]) -> str:
    """A hash map's order differs between any two processes."""
    return ", ".join(sorted(found[0].split(", ")))


def _event(event: tf.Event) -> list[Any]:
    if event.HasField("graph_def"):
        graph = tf.GraphDef.FromString(event.graph_def)
        return ["graph", event.step, len(graph.node), digest(graph.SerializeToString(deterministic=True))]
    if event.HasField("summary"):
        kept = [v for v in event.summary.value if "/sec" not in v.tag]
        return ["values", event.step, [[v.tag, digest(v.SerializeToString(deterministic=True))] for v in kept]]
    if event.HasField("tagged_run_metadata"):
        return ["metadata", event.step, event.tagged_run_metadata.tag]
    if event.HasField("meta_graph_def"):
        return ["meta graph", event.step, digest_meta_graph(tf.MetaGraphDef.FromString(event.meta_graph_def))]
    event.wall_time = 0
    return ["other", event.step, neutral(str(event))]


def neutral(text: str) -> str:
    """`text` without what differs between any two processes: the working folder and addresses."""
    text = text.replace(os.getcwd(), "<cwd>")
    text = re.sub(r"0x[0-9a-f]{6,}|localhost:\d+|127\.0\.0\.1:\d+|\b[0-9a-f]{16}\b", "<address>", text)
    text = re.sub(r"\b_\d+_(?=\w)", "_N_", text)
    text = re.sub(r"(?<=with these attrs: \[)[^\]]*", _sorted_attributes, text)
    return re.sub(r"goo\.gle/debug\w+\s+", "", text)
