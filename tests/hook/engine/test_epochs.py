"""Which shuffles an iterator has, and of which of them its checkpoint says how often they have drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepd.hook.engine.epochs import shuffles, told
from stepd.hook.engine.graphview import GraphView

tf = pytest.importorskip("tensorflow.compat.v1")

Data = Any


def some(number: int = 9) -> Data:
    return tf.data.Dataset.range(number).shuffle(4, seed=3)


PIPELINES: dict[str, tuple[Callable[[], Data], int]] = {
    "in each epoch": (lambda: some().batch(4).repeat(3), 1),
    "once": (lambda: some().batch(4), 0),
    "behind all epochs": (lambda: tf.data.Dataset.range(9).repeat(3).shuffle(4, seed=3).batch(4), 0),
    "two": (lambda: tf.data.Dataset.zip((some(), some())).batch(4).repeat(3), 2),
    "in parts too": (lambda: some().interleave(lambda x: some(3), cycle_length=2).batch(4).repeat(3), 1),
}


@pytest.mark.parametrize("one_shot", [True, False])
@pytest.mark.parametrize("name", PIPELINES)
def test_shuffles_of_an_iterator_are_counted_where_epochs_follow(name: str, one_shot: bool) -> None:
    make, number = PIPELINES[name]
    with tf.Graph().as_default() as graph:
        (tf.data.make_one_shot_iterator if one_shot else tf.data.make_initializable_iterator)(make())
        view = GraphView.parse(graph.as_graph_def().SerializeToString(), lambda name: name)
    (iterator,) = (node.name for node in view.nodes.values() if node.op in ("OneShotIterator", "IteratorV2"))
    maker = next((node.name for node in view.nodes.values() if node.op == "MakeIterator"), None)
    assert shuffles(view, iterator, maker) == number


def test_a_checkpoint_tells_of_every_shuffle_but_between_epochs(tmp_path: Path) -> None:
    found: dict[str, list[int]] = {}
    for name in ("in each epoch", "two", "in parts too"):
        with tf.Graph().as_default(), tf.Session() as session:
            options = tf.data.Options()
            options.autotune.enabled = False  # it would read ahead
            iterator = tf.data.make_initializable_iterator(PIPELINES[name][0]().with_options(options))
            element = iterator.get_next()
            state = tf.raw_ops.SerializeIterator(resource_handle=iterator._iterator_resource)
            places = [tmp_path / f"{name}{k}" for k in range(4)]
            file = tf.placeholder(tf.string, [])
            save = tf.raw_ops.SaveV2(prefix=file, tensor_names=["it"], shape_and_slices=[""], tensors=[state])
            session.run(iterator.initializer)
            found[name] = []
            for place in places:
                place.mkdir()
                session.run(save, {file: str(place / "state")})
                found[name].append(told(place))
                session.run(element)
    # Nine elements by four: the third batch is not full. The parts are of three each.
    assert found["in each epoch"] == [1, 1, 1, 0]
    assert found["two"] == [2, 2, 2, 0]
    assert found["in parts too"] == [1, 1, 1, 1]
