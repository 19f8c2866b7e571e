"""Models in sizes that are worth two devices, as programs for one device and as an expert would write them for two.

Every model is written once, in stages; `Programs` builds it plainly, as towers over halves of the batch, or with its stages placed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from split_models import Data, Layers, _attend, _flat, _loss, unrolled

DEVICES = ("/cpu:0", "/cpu:1")


@dataclass
class Staged(Layers):
    """Layers whose variables are shared between towers, with places for the stages of a model.

    `places`: a device a stage; empty: where the program runs. `owners`: devices that take variables in turn, the one with the
    least bytes first; empty: beside their stage.
    """

    places: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()
    held: dict[str, int] = field(default_factory=dict)
    made: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(np.float32)

    def begin(self) -> None:
        """The same variables again, for another tower."""
        self._count = 0

    def stage(self, number: int) -> Any:
        """The device scope of a stage of the model, counted from 0; the last place takes what is left."""
        return tf.device(self.places[min(number, len(self.places) - 1)]) if self.places else nullcontext()

    def weights(self, *shape: int, scale: float = 0.0) -> Any:
        number = self._count
        if number in self.made:
            self._count += 1
            return self.made[number]
        owner = min(self.owners, key=lambda d: self.held.get(d, 0), default="")
        self.held[owner] = self.held.get(owner, 0) + 4 * int(np.prod(shape))
        with tf.device(owner) if owner else nullcontext():
            self.made[number] = super().weights(*shape, scale=scale)
        return self.made[number]


@dataclass(frozen=True)
class Model:
    """`inputs` of (data); `loss` of (layers, features, labels)."""

    batch: int
    inputs: Callable[[Data], tuple[Any, Any]]
    loss: Callable[[Staged, Any, Any], Any]


@dataclass(frozen=True)
class Program:
    """One training program."""

    data: Data
    loss: Any
    train: Any


def one_device(model: Model, late: bool) -> Program:
    """The model as its author wrote it."""
    return _layered(model, late, ())


def layers_placed(model: Model, late: bool) -> Program:
    """The first half of the stages on one device, the others on the next; gradients where their ops are."""
    return _layered(model, late, DEVICES)


def _layered(model: Model, late: bool, places: tuple[str, ...]) -> Program:
    data = Data(np.float32, model.batch, late)
    loss = model.loss(Staged(places=places), *model.inputs(data))
    train = tf.train.MomentumOptimizer(0.05, 0.9).minimize(loss, colocate_gradients_with_ops=bool(places))
    return Program(data, loss, train)


def two_towers(model: Model, late: bool, owners: tuple[str, ...] = DEVICES) -> Program:
    """Half of the batch on each device; variables on `owners`, read once a device; gradients averaged beside the variables."""
    data = Data(np.float32, model.batch, late)
    x, y = model.inputs(data)
    layers = Staged(owners=owners)
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    halves = [(x[: tf.shape(x)[0] // 2], y[: tf.shape(x)[0] // 2]), (x[tf.shape(x)[0] // 2 :], y[tf.shape(x)[0] // 2 :])]
    if not late:
        halves = list(zip(tf.split(x, 2), tf.split(y, 2), strict=True))
    towers, losses = [], []
    for device, half in zip(DEVICES, halves, strict=True):
        layers.begin()
        with tf.device(device):
            losses.append(model.loss(layers, *half))
            towers.append(optimizer.compute_gradients(losses[-1], colocate_gradients_with_ops=True))
    averaged = []
    for pairs in zip(*towers, strict=True):
        with tf.device(pairs[0][1].device):
            averaged.append((_average([gradient for gradient, _ in pairs]), pairs[0][1]))
    return Program(data, tf.add_n(losses) / len(losses), optimizer.apply_gradients(averaged))


def _average(gradients: list[Any]) -> Any:
    """The mean over towers; rows of embeddings stay rows."""
    if isinstance(gradients[0], tf.IndexedSlices):
        values = tf.concat([g.values for g in gradients], 0) / len(gradients)
        return tf.IndexedSlices(values, tf.concat([g.indices for g in gradients], 0), gradients[0].dense_shape)
    return tf.add_n(gradients) / len(gradients)


# -- the models -------------------------------------------------------------------------------------------------------------------


def _vgg(dense: int) -> Callable[[Staged, Any, Any], Any]:
    def loss(n: Staged, x: Any, y: Any) -> Any:
        with n.stage(0):
            for filters in (32, 64):
                x = tf.nn.max_pool2d(n.conv(n.conv(x, filters), filters), 2, 2, "SAME")
        with n.stage(1):
            x = tf.nn.max_pool2d(n.conv(n.conv(x, 128), 128), 2, 2, "SAME")
            x = n.dense(_flat(x), dense, True)
            x = n.dense(x, dense, True) if dense > 1000 else x
            return _loss(n.dense(x, 10), y)

    return loss


def _mlp(n: Staged, x: Any, y: Any) -> Any:
    with n.stage(0):
        for _ in range(2):
            x = n.dense(x, 768, True)
    with n.stage(1):
        return _loss(n.dense(n.dense(x, 768, True), 10), y)


def _bert(n: Staged, x: Any, y: Any) -> Any:
    steps, words, width = int(x.shape[1]), 1000, 256
    with n.stage(0):
        h = n.layer_norm(tf.gather(n.weights(words, width), x) + n.weights(steps, width))
    for layer in range(2):
        with n.stage(layer):
            h = n.layer_norm(h + _attend(n, h, h, 4, steps, steps))
            wide = n.dense(tf.reshape(h, [-1, width]), 4 * width)
            wide = 0.5 * wide * (1.0 + tf.erf(wide / np.sqrt(2.0)))
            h = n.layer_norm(h + tf.reshape(n.dense(wide, width), [-1, steps, width]))
    with n.stage(1):
        return _loss(n.dense(tf.reshape(h, [-1, width]), words), tf.reshape(y, [-1]))


def _lstm(n: Staged, x: Any, y: Any) -> Any:
    """A language model of one layer of 256 units, unrolled; its second stage is the words' scores."""
    words, units = 1000, 256
    with n.stage(0):
        outputs = unrolled(n, x, words, units)
    with n.stage(1):
        logits = n.dense(tf.reshape(tf.stack(outputs, 1), [-1, units]), words)
        return _loss(logits, tf.reshape(y, [-1]))


def _images(data: Data) -> tuple[Any, Any]:
    return data.images(32, 3, 10)


def _vectors(data: Data) -> tuple[Any, Any]:
    return data.vectors(512, 10)


def _text(steps: int) -> Callable[[Data], tuple[Any, Any]]:
    return lambda data: data.words(steps, 1000)


LARGE: dict[str, Model] = {
    "vgg": Model(96, _images, _vgg(256)),
    "mlp": Model(3072, _vectors, _mlp),
    "bert": Model(32, _text(64), _bert),
    "lstm": Model(384, _text(16), _lstm),
    # Large dense layers behind convolutions: 8.4 million weights of them, 34 MB.
    "vgg-dense": Model(64, _images, _vgg(2048)),
}
"""Sizes at which computing outweighs sending the weights, as a user of two devices would choose them."""

SMALL: dict[str, int] = {"vgg": 32, "mlp": 1024, "bert": 16, "lstm": 128, "vgg-dense": 32}
"""Batches at which one device is nearly enough."""
