"""Runs programs one after the other in this process, each on a fresh graph in a fresh folder, and saves their records.

    python run.py RECORDS_FOLDER SECONDS_EACH family.case [family.case ...]

A program is a function `program_<case>(record)` in `<family>.py` beside this file. A program that hangs ends the process with its
stacks on stderr and status 75, so that whoever started it can go on with the next one. The environment says how else it runs
(`variations.py`).
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

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import tensorflow.compat.v1 as tf
import variations
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
    record.notes.append(["what runs fetched besides", variations.peeks.taken()])
    record.save(folder)
    done.set()
    gc.collect()


def watch(name: str, seconds: float, done: threading.Event) -> None:
    """Ends the process if `done` is not set in time. Time in which the process is stopped does not count."""
    for _ in range(int(seconds)):
        if done.wait(1):
            return
    give_up(name)


def give_up(name: str) -> None:
    print(f"{name}: hangs", file=sys.stderr)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(75)


if __name__ == "__main__":
    variations.vary()
    records = str(Path(sys.argv[1]).absolute())
    for one in sys.argv[3:]:
        run_one(one, records, float(sys.argv[2]))
