"""From a model's loss to the graph of one training step: gradients and optimizer, on one device or as replicated towers."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf
from zoo.layers import v1

Loss = Callable[[int], tf.Tensor]
OPTIMIZERS = {
    "adam": lambda: v1.train.AdamOptimizer(1e-4),
    "momentum": lambda: v1.train.MomentumOptimizer(1e-2, 0.9),
    "sgd": lambda: v1.train.GradientDescentOptimizer(1e-2),
}


def step_graph(
    loss: Loss, batch: int, optimizer: str | None, towers: int = 1, resource_variables: bool = True
) -> tuple[tf.Graph, tf.Operation | tf.Tensor]:
    """The graph and what a step runs of it. Without an optimizer: inference, a step is the loss.

    `towers` > 1: in-graph replication as TF-slim and the CIFAR-10 multi-GPU example do it: a tower a GPU under a name
    scope of its own, each on batch / towers samples, variables shared, gradients averaged and applied once.
    """
    graph = tf.Graph()
    with graph.as_default(), v1.variable_scope("", use_resource=resource_variables):
        if optimizer is None:
            return graph, loss(batch)
        opt = OPTIMIZERS[optimizer]()
        if towers == 1:
            gradients = _dense(opt.compute_gradients(loss(batch)))
        else:
            gradients = _averaged([_tower(loss, batch // towers, opt, k) for k in range(towers)])
        return graph, opt.apply_gradients(gradients, name="train")


def _tower(loss: Loss, batch: int, opt: v1.train.Optimizer, number: int):
    with (
        tf.device(f"/device:GPU:{number}"),
        v1.name_scope(f"tower_{number}"),
        v1.variable_scope(v1.get_variable_scope(), reuse=number > 0),
    ):
        return _dense(opt.compute_gradients(loss(batch)))


def _dense(gradients):
    """[(gradient, variable)] with embeddings' slices summed into tensors: what is unique among a batch's words has no
    static size."""
    return [(tf.convert_to_tensor(g), v) for g, v in gradients if g is not None]


def _averaged(towers):
    """[(mean gradient, variable)]: towers are lists of (gradient, variable) in one order."""
    return [(tf.add_n([gradient for gradient, _ in pairs]) / len(pairs), pairs[0][1]) for pairs in zip(*towers, strict=True)]
