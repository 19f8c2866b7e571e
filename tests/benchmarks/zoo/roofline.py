"""Costs of a TensorFlow graph from its static shapes: FLOPs and bytes of each op, and a roofline over them.

    seconds(op, device) = launch + max(FLOPs / (efficiency x peak FLOP/s), bytes moved / (0.75 x bandwidth))

Bytes moved are the op's inputs and outputs, each once. Ops that touch no element (constants, variables, reshapes,
control) cost nothing but the launch, and those that the runtime folds or keeps cost 0. Memory: variables (and so the
optimizer's slots, which are variables) are resident; an op's temporary bytes are its outputs, and for convolutions a
workspace as large as the larger of input and output. Nothing is executed.
"""

from __future__ import annotations

from math import prod

import numpy as np
import tensorflow as tf
from zoo.testbeds import CONV_EFFICIENCY, MATMUL_EFFICIENCY, MEMORY_EFFICIENCY, WINOGRAD_EFFICIENCY, Testbed

from stepd.core.graph import GraphCosts, Node, OpGraph, ancestors, op_graph, variable_bytes

# No kernel runs: folded, held by the executor, or known before the step.
FREE = frozenset({"Const", "Placeholder", "VarHandleOp", "VariableV2", "NoOp"})
# A kernel runs and moves nothing: it hands its input's buffer on, or answers about shapes.
ALIASES = frozenset(
    {"Identity", "Reshape", "Squeeze", "ExpandDims", "ReadVariableOp", "StopGradient", "Shape", "Size", "Rank"}
    | {"BroadcastGradientArgs", "ConcatOffset", "ShapeN", "InvertPermutation", "Enter", "Exit", "IdentityN"}
)
CONVOLUTIONS = frozenset(
    {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
    | {"DepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter"}
)
PRODUCTS = frozenset({"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"})
# FLOPs an element of the output for what is dearer than one.
PER_ELEMENT = {"Exp": 4, "Tanh": 6, "Sigmoid": 6, "Softmax": 8, "LogSoftmax": 8, "Erf": 10, "Pow": 8, "Rsqrt": 2}
PER_ELEMENT |= {"FusedBatchNormV3": 8, "FusedBatchNormGradV3": 12, "LRN": 10, "LRNGrad": 20}
UPDATES = {"ApplyAdam": 12, "ResourceApplyAdam": 12, "ApplyMomentum": 4, "ResourceApplyMomentum": 4}


def nodes_of(graph: tf.Graph) -> list[Node]:
    """The graph's operations as the nodes that `stepd.core.graph` reads."""
    return [_node(op) for op in graph.get_operations()]


def _node(op: tf.Operation) -> Node:
    groups = [name.decode().removeprefix("loc:@") for name in op.colocation_groups()]
    variable = op.type in ("VariableV2", "VarHandleOp")
    return Node(
        name=op.name,
        op=op.type,
        inputs=(*(t.name for t in op.inputs), *(f"^{c.name}" for c in op.control_inputs)),
        device=op.device,
        colocate_with=tuple(name for name in groups if name != op.name),
        frame_name=op.get_attr("frame_name").decode() if op.type == "Enter" else "",
        dtype=tf.as_dtype(op.get_attr("dtype")).as_datatype_enum if variable else 0,
        shape=tuple(tf.TensorShape(op.get_attr("shape")).as_list()) if variable else None,
    )


def costed(graph: tf.Graph, target: tf.Operation | tf.Tensor, testbed: Testbed) -> tuple[OpGraph, GraphCosts]:
    """What a run of `target` executes, and what it costs on `testbed`."""
    kept = ancestors(nodes_of(graph), [target.name.partition(":")[0]])
    ops = [graph.get_operation_by_name(node.name) for node in kept]
    columns = op_graph(kept)
    work = [_work(op) for op in ops]
    seconds = np.array([[_seconds(op, *w, p) for p in testbed.processors] for op, w in zip(ops, work, strict=True)])
    temporary = [_temporary_bytes(op) for op in ops]
    sizes = {(i, k): tensor_bytes(t) for i, op in enumerate(ops) for k, t in enumerate(op.outputs)}
    resident = np.array([variable_bytes(node) for node in kept], dtype=np.int64)
    return columns, GraphCosts(seconds, resident, np.array(temporary, dtype=np.int64), sizes)


def tensor_bytes(tensor: tf.Tensor) -> int:
    """Bytes of a tensor by its static shape. Raises ValueError where the shape is not known: models here are static."""
    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return 8
    if tensor.op.type == "FusedBatchNormV3" and tensor.value_index == 5:
        return 0  # cuDNN's reserve space, which no training step of these reads
    if not tensor.shape.is_fully_defined():
        raise ValueError(f"{tensor.name} has shape {tensor.shape}: the zoo needs static shapes")
    return elements(tensor) * tensor.dtype.size


def elements(tensor: tf.Tensor) -> int:
    """Elements of a tensor with a static shape; 0 where it has none (see tensor_bytes)."""
    return prod(tensor.shape.as_list()) if tensor.shape.is_fully_defined() else 0


def _seconds(op: tf.Operation, flops: float, moved: float, processor) -> float:
    if op.type in FREE:
        return 0.0
    efficiency = CONV_EFFICIENCY if op.type in CONVOLUTIONS else MATMUL_EFFICIENCY
    if _is_winograd(op):
        efficiency = WINOGRAD_EFFICIENCY
    compute = flops / (efficiency * processor.flops)
    return processor.launch_seconds + max(compute, moved / (MEMORY_EFFICIENCY * processor.bandwidth))


def _work(op: tf.Operation) -> tuple[float, float]:
    """(FLOPs, bytes moved) of one run of `op`."""
    if op.type in FREE or op.type in ALIASES:
        return 0.0, 0.0
    moved = float(sum(tensor_bytes(t) for t in (*op.inputs, *op.outputs)))
    if op.type in CONVOLUTIONS:
        return _convolution_flops(op), moved
    if op.type in PRODUCTS:
        transposed = op.get_attr("transpose_a" if op.type == "MatMul" else "adj_x")
        inner = op.inputs[0].shape.as_list()[-2 if transposed else -1]
        return 2.0 * elements(op.outputs[0]) * inner, moved
    if op.type in ("GatherV2", "ResourceGather", "Slice", "StridedSlice"):  # reads only what it gives
        return 0.0, 2.0 * sum(tensor_bytes(t) for t in op.outputs)
    if op.type in UPDATES:  # reads and writes the variable and its slots, which are handles or references here
        gradient = op.inputs[-1]
        return float(UPDATES[op.type] * elements(gradient)), 7.0 * tensor_bytes(gradient)
    size = max((elements(t) for t in (*op.inputs, *op.outputs) if t.dtype != tf.resource), default=0)
    return float(PER_ELEMENT.get(op.type, 1) * size), moved


def _convolution_flops(op: tf.Operation) -> float:
    """2 x (elements of the convolution's output) x (filter height x width x input channels, 1 channel if depthwise)."""
    if op.type.endswith("BackpropInput"):
        kernel, out = op.inputs[1].shape.as_list(), op.inputs[2]
    elif op.type.endswith("BackpropFilter"):
        kernel, out = op.outputs[0].shape.as_list(), op.inputs[2]
    else:
        kernel, out = op.inputs[1].shape.as_list(), op.outputs[0]
    channels = 1 if op.type.startswith("Depthwise") else kernel[2]
    return 2.0 * elements(out) * kernel[0] * kernel[1] * channels


def _is_winograd(op: tf.Operation) -> bool:
    """3 x 3 with stride 1, which cuDNN computes with fewer products than the definition."""
    if not op.type.startswith("Conv2D") or set(op.get_attr("strides")) != {1}:
        return False
    kernel = {"Conv2D": op.inputs[1], "Conv2DBackpropInput": op.inputs[1]}.get(op.type, op.outputs[0])
    return kernel.shape.as_list()[:2] == [3, 3]


def _temporary_bytes(op: tf.Operation) -> int:
    outputs = sum(tensor_bytes(t) for t in op.outputs) if op.type not in FREE else 0
    workspace = max(map(tensor_bytes, (*op.inputs, *op.outputs))) if op.type in CONVOLUTIONS else 0
    return outputs + workspace
