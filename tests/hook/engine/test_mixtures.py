"""Whether a checkpoint has a mixture of data sets of which some are used up, from TensorFlow's own iterators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepd.hook.engine.graphview import GraphView
from stepd.hook.engine.mixtures import mixes, some_used_up

tf = pytest.importorskip("tensorflow.compat.v1")


def mixed(stop: bool = False, deep: bool = False) -> Any:
    """1, 7, 2, 8, 9: of two and of three, in turns."""
    parts = [tf.data.Dataset.range(1, 3), tf.data.Dataset.range(7, 10)]
    turns = tf.data.Dataset.range(2).repeat()
    one = tf.data.Dataset.choose_from_datasets(parts, turns, stop_on_empty_dataset=stop)
    return tf.data.Dataset.choose_from_datasets([one.map(lambda x: x * 2)], tf.data.Dataset.range(1).repeat()) if deep else one


@pytest.mark.parametrize("deep", [False, True])
def test_a_checkpoint_says_when_some_are_used_up(tmp_path: Path, deep: bool) -> None:
    options = tf.data.Options()
    options.autotune.enabled = False  # it would read ahead
    with tf.Graph().as_default(), tf.Session() as session:
        iterator = tf.data.make_initializable_iterator(mixed(deep=deep).with_options(options))
        element = iterator.get_next()
        state = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
        file = tf.placeholder(tf.string, [])
        save = tf.raw_ops.SaveV2(prefix=file, tensor_names=["it"], shape_and_slices=[""], tensors=[state])
        session.run(iterator.initializer)
        found = []
        for k in range(7):
            (tmp_path / str(k)).mkdir()
            session.run(save, {file: str(tmp_path / str(k) / "state")})
            found.append(some_used_up(tmp_path / str(k)))
            try:
                session.run(element)
            except tf.errors.OutOfRangeError:
                assert k >= 5
    # The first is known to be used up when its turn comes for the third time, before the fifth element; in the end all are.
    assert found == [False, False, False, False, False, True, False]


def test_only_mixtures_that_go_on_count() -> None:
    for stop in (True, False):
        with tf.Graph().as_default() as graph:
            tf.data.make_one_shot_iterator(mixed(stop))
            view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
        assert mixes(view) is not stop
