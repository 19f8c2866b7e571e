"""Which ops a runtime fuses into one kernel, as data for GCOF: rules are sequences of op types, producers first.

MOIRAI_TABLE_I is the paper's example. TENSORFLOW_REMAPPER is what TensorFlow's grappler remapper does in TF 2.12 to 2.21 on CPUs
and GPUs (tensorflow/core/grappler/optimizers/remapper.cc), as far as op types tell: attributes such as is_training, or a bias
that must be a constant, are not seen here, and a pair that is not fused after all loses nothing by sharing a device.
"""

from __future__ import annotations

Types = frozenset[str]
Rule = tuple[Types, ...]


def _types(*names: str) -> Types:
    return frozenset(names)


_CONV = _types("conv", "Conv2D", "Conv3D", "DepthwiseConv2dNative")
_NORM = _types("bn", "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_ADD = _types("add", "Add", "AddV2")
_RELU = _types("relu", "Relu")

MOIRAI_TABLE_I: tuple[Rule, ...] = (
    (_CONV, _NORM),
    (_CONV, _NORM, _RELU),
    (_CONV, _NORM, _ADD, _RELU),
)

_CONTRACTION = _types("Conv2D", "Conv3D", "DepthwiseConv2dNative", "MatMul")
_BIAS = _types("BiasAdd")
_BIAS_OR_ADD = _types("BiasAdd", "Add", "AddV2")
_ACTIVATION = _types("Relu", "Relu6", "Elu", "LeakyRelu", "Tanh", "Sigmoid", "Gelu")

TENSORFLOW_REMAPPER: tuple[Rule, ...] = (
    # _FusedConv2D, _FusedDepthwiseConv2dNative, _FusedMatMul: bias, then an activation or a residual input
    (_CONTRACTION, _BIAS_OR_ADD),
    (_CONTRACTION, _BIAS_OR_ADD, _ACTIVATION),
    (_CONTRACTION, _BIAS, _ADD),
    (_CONTRACTION, _BIAS, _ADD, _ACTIVATION),
    (_types("Conv2D"), _types("Squeeze"), _BIAS),
    (_types("Pad"), _types("Conv2D", "Conv3D", "DepthwiseConv2dNative"), _BIAS),
    # _FusedConv2D with batch normalisation (inference)
    (_types("Conv2D", "DepthwiseConv2dNative"), _NORM),
    (_types("Conv2D", "DepthwiseConv2dNative"), _NORM, _ACTIVATION),
    # _FusedBatchNormEx and _FusedBatchNormGradEx: side input and activation
    (_NORM, _RELU),
    (_NORM, _ADD, _RELU),
    (_types("ReluGrad"), _types("FusedBatchNormGradV2", "FusedBatchNormGradV3")),
    # _FusedBatchMatMulV2: scale and mask of attention
    (_types("BatchMatMul", "BatchMatMulV2"), _types("Mul"), _ADD),
    # Swish and Mish
    (_types("Sigmoid"), _types("Mul")),
    (_types("Softplus"), _types("Tanh"), _types("Mul")),
)

RULE_SETS: dict[str, tuple[Rule, ...]] = {
    "moirai-table-1": MOIRAI_TABLE_I,
    "tensorflow": TENSORFLOW_REMAPPER,
    "all": (*TENSORFLOW_REMAPPER, *MOIRAI_TABLE_I),
}
