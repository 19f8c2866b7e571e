"""Data sets that are shuffled anew in each epoch: does an iterator's checkpoint say how the epochs to come are shuffled?

It says how often each shuffle has drawn, as long as the shuffle has an iterator of its own. Between the end of an epoch and the
beginning of the next it has none: behind a last batch that is not full, say, or while an `interleave` still reads the last files.
TensorFlow's own savers lose it then. It must not know sessions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.iterator_keys import contents, owners

_SHUFFLES = frozenset({
    "ShuffleDataset", "ShuffleDatasetV2", "ShuffleDatasetV3", "ShuffleAndRepeatDataset", "ShuffleAndRepeatDatasetV2",
})  # fmt: skip
_KEY = b"epoch_num_random_samples"
# What is made for an element is made anew, with all its shuffles.
_OF_AN_ELEMENT = re.compile(rb"(?:^|::)(?:(?:Index)?FlatMap|(?:Legacy)?(?:Parallel)?Interleave|GroupByWindow)\w*\[")


def shuffles(view: GraphView, iterator: str, maker: str | None) -> int:
    """How many data sets of `iterator`, made by `maker` (None: a one-shot iterator), are shuffled; 0 where none is in each of
    several epochs. Those of the parts of an `interleave` or its like do not count."""
    if maker is not None:
        above = view.ancestors([maker])
        given = {name: [source for source, _ in view.nodes[name].inputs] for name in above}
        return _repeated({name: view.nodes[name].op for name in above}, given)
    factory = view.functions.get(view.nodes[iterator].proto.attr["dataset_factory"].func.name)
    inside = () if factory is None else factory.node_def
    given = {str(node.name): [source.lstrip("^").partition(":")[0] for source in node.input] for node in inside}
    return _repeated({str(node.name): str(node.op) for node in inside}, given)


def _repeated(ops: Mapping[str, str], given: Mapping[str, Iterable[str]]) -> int:
    found = {name for name, op in ops.items() if op in _SHUFFLES}
    stack, seen = [name for name, op in ops.items() if op == "RepeatDataset"] if found else [], set[str]()
    while stack:
        name = stack.pop()
        if name not in seen:
            seen.add(name)
            stack += [source for source in given[name] if source in given]
    return len(found) if found & seen else 0


def told(folder: Path) -> int:
    """Of how many of these the checkpoint in `folder` says how often they have drawn."""
    names = (name for data in contents(folder) for name, _ in owners(data, _KEY))
    return sum(bool(name) and not _OF_AN_ELEMENT.search(name) for name in names)
