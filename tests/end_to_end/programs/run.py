"""Runs programs one after the other in this process, each on a fresh graph in a fresh folder, and saves their records.

    python run.py RECORDS_FOLDER SECONDS_EACH family.case [family.case ...]

A program is a function `program_<case>(record)` in `<family>.py` beside this file. A program that hangs ends the process with its
stacks on stderr and status 75, so that whoever started it can go on with the next one. With FIDELITY_UNKNOWN_BATCH in the
environment placeholders do not know the first of their sizes, with FIDELITY_COLOCATED gradients lie with the ops that they are of:
TensorFlow rewrites such graphs otherwise. With FIDELITY_V2 all that TensorFlow 2 does otherwise but eager execution stays as it is
there: control flow, resource variables, shapes. FIDELITY_CONFIG is a ConfigProto in text form, of which every session is asked for
what the program does not ask for itself.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import itertools
import os
import sys
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import tensorflow.compat.v1 as tf
import words
from recorder import Record


def run_one(name: str, folder: str, seconds: float) -> None:
    family, case = name.split(".")
    place = Path(folder, "cwd", name)
    place.mkdir(parents=True)
    os.chdir(place)
    done = threading.Event()
    threading.Thread(target=watch, args=(name, seconds, done), daemon=True).start()
    tf.reset_default_graph()
    np.random.seed(7)
    numbers = itertools.count(1)
    uuid.uuid4 = lambda: uuid.UUID(int=next(numbers))  # some resources are named by it
    record, said = Record(name), Counter[str]()
    program = getattr(importlib.import_module(family), "program_" + case)
    try:
        with words.listening(said):
            program(record)
    except Exception as error:
        record.note_error("the program ended with", error)
    record.notes.append(["what Python said", words.steady(said, str(place))])
    record.save(folder)
    done.set()
    gc.collect()


def watch(name: str, seconds: float, done: threading.Event) -> None:
    """Ends the process if `done` is not set in time. Time in which the process is stopped does not count."""
    for _ in range(int(seconds)):
        if done.wait(1):
            return
    give_up(name)


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
    from tensorflow.python.client import session

    asked, known = text_format.Parse(text, tf.ConfigProto()), session.BaseSession.__init__

    def init(self: Any, target: Any = "", graph: Any = None, config: Any = None) -> None:
        both = tf.ConfigProto()
        both.CopyFrom(asked)
        if config is not None:
            both.MergeFrom(config)
        known(self, target, graph, both)

    session.BaseSession.__init__ = init


def vary() -> None:
    """What the environment asks for."""
    if os.environ.get("FIDELITY_V2"):
        tf.disable_eager_execution()
    else:
        tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    if os.environ.get("FIDELITY_UNKNOWN_BATCH"):
        forget_batches()
    if os.environ.get("FIDELITY_COLOCATED"):
        colocate_gradients()
    if os.environ.get("FIDELITY_CONFIG"):
        configure(os.environ["FIDELITY_CONFIG"])


def give_up(name: str) -> None:
    print(f"{name}: hangs", file=sys.stderr)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(75)


if __name__ == "__main__":
    vary()
    records = str(Path(sys.argv[1]).absolute())
    for one in sys.argv[3:]:
        run_one(one, records, float(sys.argv[2]))
