"""What a human expert does: whole layers, in order, on one device after the other, each with an equal share of the time.

Layers are name scopes (FastT section 6, Pesto section 5.2): "model/encoder/layer_3/attention/MatMul" belongs to the scope of the
depth at which the graph has enough scopes to be balanced. The backward pass and the optimizer follow the forward ops that they
belong to: by name ("gradients/<scope>..."), otherwise by what they read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stepd.core.placement.fallback import nearest_allowed
from stepd.core.placement.name_scopes import layer_of_ops
from stepd.core.placement.orders import order_for
from stepd.core.placement.ranks import op_seconds
from stepd.core.placement.registry import PlanOptions
from stepd.core.placement.result import finish
from stepd.core.prepared import prepare
from stepd.core.problem import Float, Index, Problem
from stepd.core.strategy import Strategy


def place(problem: Problem, options: PlanOptions) -> Strategy:
    """The expert. Parameters: `devices` (how many to use, default all), `order` of execution: "ready" or "rank"."""
    prepared = prepare(problem)
    layers = layer_of_ops(problem)
    devices = min(int(options.parameter("devices", problem.n_devices)), problem.n_devices)
    weight = np.bincount(layers, weights=op_seconds(prepared, "mean"), minlength=int(layers.max(initial=-1)) + 1)
    stage = stages(weight, _speeds(prepared.tables.seconds)[:devices])
    placement = nearest_allowed(prepared, stage[layers].astype(np.int32))
    priority = order_for(problem, placement, options.parameter("order", "ready"))
    return finish(problem, "expert", options, placement, priority, layers=len(weight))


def stages(weight: npt.NDArray[Any], speed: Float) -> Index:
    """Device of every layer, int [layers], in order: each device ends where its share of the time is reached.

    weight: seconds of each layer; speed: of each device, relative.
    """
    share = np.cumsum(speed) / max(float(speed.sum()), 1e-300)
    middle = (np.cumsum(weight) - weight / 2) / max(float(weight.sum()), 1e-300)
    return np.minimum(np.searchsorted(share, middle, side="right"), len(speed) - 1)


def _speeds(seconds: Float) -> Float:
    """How fast each device is: ops that run everywhere, per second of them. float64 [d]."""
    common = np.isfinite(seconds).all(axis=1)
    total = seconds[common].sum(axis=0)
    return np.asarray(1.0 / np.maximum(total, 1e-12))
