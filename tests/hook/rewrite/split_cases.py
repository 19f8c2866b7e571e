"""Graphs that hold every op type of the table, small, with gradients."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.framework import op_def_registry
from tensorflow.python.ops import gen_array_ops, gen_image_ops, gen_nn_ops, gen_rnn_ops


class Inputs:
    """Makes inputs of a dtype; when `late`, leading dimensions are known at run time only."""

    def __init__(self, dtype: Any, late: bool) -> None:
        self.dtype = dtype
        self.late = late
        self.feeds: dict[str, Any] = {}
        self._random = np.random.RandomState(0)

    def real(self, *shape: int, low: float = -1.0, high: float = 1.0) -> Any:
        return self._input(self._random.uniform(low, high, shape).astype(self.dtype))

    def whole(self, most: int, *shape: int) -> Any:
        return self._input(self._random.randint(0, most, shape).astype(np.int32))

    def truth(self, *shape: int) -> Any:
        return self._input(self._random.rand(*shape) > 0.5)

    def _input(self, value: Any) -> Any:
        late = self.late and value.ndim > 1
        made = tf.placeholder(value.dtype, [None, *value.shape[1:]] if late else value.shape)
        self.feeds[made.name] = value
        return made

    def fixed(self, *shape: int) -> Any:
        return tf.constant(self._random.uniform(-1, 1, shape).astype(self.dtype))

    def gradients(self, out: Any, *of: Any) -> None:
        tf.gradients(out, list(of), grad_ys=self.like(out))

    def like(self, out: Any) -> Any:
        """A gradient for `out` that is not constant."""
        return tf.cos(out)


def elementwise(i: Inputs) -> None:
    x, y, row = i.real(5, 4, 3), i.real(5, 4, 3), i.fixed(3)
    for f in (tf.nn.relu, tf.nn.relu6, tf.nn.elu, tf.nn.selu, tf.tanh, tf.sigmoid, tf.nn.softplus, tf.nn.softsign, tf.exp,
              tf.square, tf.abs, tf.negative, tf.sin, tf.erf, tf.nn.leaky_relu, tf.zeros_like, tf.identity):  # fmt: skip
        z = f(x)
        i.gradients(z, x)
    p = i.real(5, 4, low=0.5, high=2.0)
    for f in (tf.sqrt, tf.rsqrt, tf.log, tf.reciprocal, tf.log1p):
        i.gradients(f(p), p)
    for f in (tf.add, tf.subtract, tf.multiply, tf.maximum, tf.squared_difference, tf.div_no_nan, tf.atan2, tf.floordiv):
        z = f(x, y)
        i.gradients(z, x, y)
        wide = f(x, row)
        if f is not tf.atan2:  # whose gradient knows no broadcasting in older TensorFlows (2.12)
            i.gradients(wide, x, row)
    column = i.real(5, 1)
    i.gradients(p * column, p, column)
    i.gradients(p / (column + 3.0), p, column)
    tf.where_v2(x > y, x, row)
    tf.where(tf.greater(x, y), x, y)
    tf.where(i.truth(5), p, p * 2)
    tf.add_n([x, y, x * y])
    tf.identity_n([x, y])
    tf.cast(x, tf.float32)
    tf.clip_by_value(x, -0.5, 0.5)
    tf.logical_not(tf.less(x, 0.1))
    tf.floormod(i.whole(9, 6, 2), 4)
    tf.bitwise.bitwise_and(i.whole(9, 6, 2), 4)
    tf.size(x), tf.raw_ops.Rank(input=x), tf.shape(x), tf.shape_n([x, y])
    tf.stop_gradient(x)
    tf.ensure_shape(x, [None, 4, 3])


_REALS = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BesselI0e", "BesselI1e", "Ceil", "Cosh", "Digamma", "Erfc", "Erfinv",
    "Expm1", "Floor", "Inv", "IsFinite", "IsInf", "IsNan", "Lgamma", "Ndtri", "Rint", "Round", "Sinh", "Tan", "ClipByValue",
    "OnesLike",    "PreventGradient", "Snapshot",
)  # fmt: skip
_PAIRS = (
    "ApproximateEqual", "Div", "MulNoNan", "Pow", "RealDiv", "TruncateDiv", "TruncateMod", "Xdivy", "Xlog1py", "Xlogy", "Zeta",
    "Igamma", "Igammac", "Polygamma", "NotEqual", "Equal", "InvGrad", "Mod",
)  # fmt: skip
_WHOLE = ["BitwiseOr", "BitwiseXor", "LeftShift", "RightShift", "LessEqual", "GreaterEqual", "TruncateDiv", "Mod"]


def by_name(i: Inputs) -> None:
    """Element-wise ops that have no wrapper worth the name."""
    x, y = i.real(5, 4, low=0.1, high=0.9), i.real(5, 4, low=0.1, high=0.9)
    for name in (*_REALS, *_PAIRS):
        op = getattr(tf.raw_ops, name)
        names = [arg.name for arg in op_def_registry.get(name).input_arg]
        values = dict(zip(names, (x, y, tf.cast(2.0, i.dtype)), strict=False))
        op(**values)
    n, m = i.whole(9, 6, 2), i.whole(5, 6, 2)
    for name in _WHOLE:
        getattr(tf.raw_ops, name)(x=n, y=m + 1)
    tf.raw_ops.Invert(x=n)
    truth = i.truth(5, 4)
    tf.raw_ops.LogicalAnd(x=truth, y=truth), tf.raw_ops.LogicalOr(x=truth, y=truth)
    if i.dtype != np.float16:
        z = tf.complex(x, y)
        tf.real(z), tf.imag(z), tf.conj(z), tf.raw_ops.ComplexAbs(x=z, Tout=i.dtype), tf.raw_ops.Angle(input=z, Tout=i.dtype)
    tf.raw_ops.Add(x=x, y=y), tf.raw_ops.AccumulateNV2(inputs=[x, y], shape=[None, 4] if i.late else [5, 4])
    tf.raw_ops.SoftplusGrad(gradients=x, features=y), tf.raw_ops.BiasAddV1(value=x, bias=i.fixed(4))
    tf.raw_ops.BatchMatMul(x=i.real(3, 4, 5), y=i.real(3, 5, 2))
    tf.raw_ops.BatchMatMulV3(x=i.real(3, 4, 5), y=i.fixed(5, 2), Tout=i.dtype)
    tf.raw_ops.Concat(concat_dim=1, values=[x, y])
    tf.raw_ops.ConjugateTranspose(x=x, perm=[1, 0]), tf.raw_ops.MatrixDiagPart(input=i.real(3, 4, 4))
    if i.dtype == np.float32:
        tf.raw_ops.InTopK(predictions=x, targets=i.whole(4, 5, 1)[:, 0], k=2)
    if i.dtype == np.float32:
        q = tf.quantization.fake_quant_with_min_max_args(x * 9.0)
        i.gradients(q, x)
        low, high = tf.constant(0.2), tf.constant(0.6)
        i.gradients(tf.quantization.fake_quant_with_min_max_vars(x, low, high), x, low, high)
        p = i.real(2, 4, 4, 4, 3)
        q = tf.nn.max_pool3d(p, 2, 2, "VALID")
        window = {"ksize": [1, 2, 2, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "VALID"}
        tf.raw_ops.MaxPool3DGradGrad(orig_input=p, orig_output=q, grad=tf.cos(p), **window)


def contractions(i: Inputs) -> None:
    for a, b, ta, tb in ((5, 3, False, False), (5, 3, True, False), (5, 3, False, True), (5, 3, True, True)):
        x = i.fixed(4, a) if ta else i.real(a, 4)
        w = i.fixed(b, 4) if tb else i.fixed(4, b)
        i.gradients(tf.matmul(x, w, transpose_a=ta, transpose_b=tb), x, w)
    x, y = i.real(3, 2, 4, 5), i.real(3, 2, 5, 6)
    i.gradients(tf.matmul(x, y), x, y)
    i.gradients(tf.matmul(x, x, transpose_b=True), x)
    i.gradients(tf.matmul(x, i.fixed(5, 3)), x)
    a, b = i.real(3, 4, 5), i.fixed(5, 2, 6)
    i.gradients(tf.einsum("btf,fnh->btnh", a, b), a, b)
    i.gradients(tf.einsum("btnh,bfnh->bntf", i.real(3, 4, 2, 5), i.real(3, 4, 2, 5)))


def ellipses(i: Inputs) -> None:
    query = i.real(3, 2, 4, 5)
    i.gradients(tf.einsum("...x,xy->...y", query, i.fixed(5, 6)), query)
    i.gradients(tf.einsum("...qd,...kd->...qk", query, query), query)
    tf.einsum("...qd,...kd->...qk", query, i.fixed(2, 7, 5)), tf.einsum("...qd,...kd->q...k", query, i.fixed(1, 7, 5))


def convolutions(i: Inputs) -> None:
    x, w = i.real(5, 6, 6, 4), i.fixed(3, 3, 4, 6)
    y = tf.nn.conv2d(x, w, 2, "SAME")
    i.gradients(y, x, w)
    i.gradients(tf.nn.conv2d(x, w, 1, "VALID"), x, w)
    b = i.fixed(6)
    i.gradients(tf.nn.bias_add(y, b), y, b)
    d = i.fixed(3, 3, 4, 2)
    i.gradients(tf.nn.depthwise_conv2d(x, d, [1, 1, 1, 1], "SAME"), x, d)
    for pool in (tf.nn.max_pool2d, tf.nn.avg_pool2d):
        i.gradients(pool(x, 3, 2, "SAME"), x)
    (m,) = tf.gradients(tf.nn.max_pool2d(x, 2, 2, "VALID"), x)
    tf.gradients(m, x)
    gen_nn_ops.max_pool_v2(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    p = gen_nn_ops.max_pool_v2(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    gen_nn_ops.max_pool_grad_v2(x, p, tf.cos(p), [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    tf.nn.conv2d_transpose(x, i.fixed(3, 3, 5, 4), tf.stack([tf.shape(x)[0], 12, 12, 5]), 2)
    tf.image.extract_image_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID")
    tf.space_to_depth(x, 2), tf.depth_to_space(x, 2)
    grad_b = gen_nn_ops.bias_add_grad(y)
    tf.identity(grad_b)


@functools.cache
def takes_channels_first() -> bool:
    """Whether convolutions take images with channels first on this CPU: oneDNN's do, which TensorFlow uses on some processors."""
    with tf.Graph().as_default(), tf.Session() as session:
        image, weights = tf.placeholder(tf.float32, [1, 1, 4, 4]), tf.ones([3, 3, 1, 1])
        product = tf.nn.conv2d(image, weights, 1, "SAME", data_format="NCHW")
        try:
            session.run(tf.gradients(product, image), {image: np.ones([1, 1, 4, 4], np.float32)})
        except tf.errors.OpError:
            return False
    return True


def kernels_of_float(i: Inputs) -> None:
    """Ops without kernels of half precision on a CPU."""
    x, w = i.real(4, 4, 5, 5, 2), i.fixed(2, 2, 2, 2, 4)
    y = tf.nn.conv3d(x, w, [1, 1, 1, 1, 1], "SAME")
    i.gradients(y, x, w)
    if i.dtype == np.float32:
        for pool in (tf.nn.max_pool3d, tf.nn.avg_pool3d):
            i.gradients(pool(x, 2, 2, "SAME"), x)
        first, turned = i.real(5, 4, 6, 6), i.fixed(3, 3, 4, 6)
        i.gradients(tf.nn.bias_add(first, i.fixed(4), data_format="NCHW"), first)
        gen_nn_ops.bias_add_grad(first, data_format="NCHW")
        if takes_channels_first():
            i.gradients(tf.nn.conv2d(first, turned, 1, "SAME", data_format="NCHW"), first, turned)
            tf.nn.max_pool2d(first, 2, 2, "VALID", data_format="NCHW")  # oneDNN's gradient runs beside its own MaxPool only
            i.gradients(tf.nn.avg_pool2d(first, 2, 2, "VALID", data_format="NCHW"), first)
        image = i.real(5, 4, 4, 6)
        i.gradients(tf.nn.lrn(image), image)
        scale, offset = i.fixed(6), i.fixed(6)
        for training in (True, False):
            running = {} if training else {"mean": i.fixed(6), "variance": tf.abs(i.fixed(6)) + 1.0}
            out = tf.nn.fused_batch_norm(image, scale, offset, is_training=training, **running)[0]
            i.gradients(out, image, scale, offset)
            out = tf.raw_ops.FusedBatchNormV2(
                x=image, scale=scale, offset=offset, mean=running.get("mean", tf.zeros([0])),
                variance=running.get("variance", tf.zeros([0])), is_training=training,
            )  # fmt: skip
            i.gradients(out.y, image, scale, offset)
            first = tf.raw_ops.FusedBatchNorm(
                x=image, scale=scale, offset=offset, mean=running.get("mean", tf.zeros([0])),
                variance=running.get("variance", tf.zeros([0])), is_training=training,
            )  # fmt: skip
            i.gradients(first.y, image, scale, offset)
        for method in ("bilinear", "nearest", "bicubic", "area"):
            r = tf.image.resize(image, [7, 3], method)
            if method != "area":
                i.gradients(r, image)
        gen_image_ops.resize_bilinear_grad(tf.cos(r), image)


def reductions(i: Inputs) -> None:
    x = i.real(5, 4, 3)
    for f in (tf.reduce_sum, tf.reduce_mean, tf.reduce_max, tf.reduce_min, tf.reduce_prod):
        for axis, keep in ((None, False), ([0], False), ([1, 2], True), (-1, False), ([0, 2], False)):
            z = f(x, axis, keep)
            if f in (tf.reduce_sum, tf.reduce_mean, tf.reduce_max):
                i.gradients(z, x)
    t = i.truth(5, 4)
    tf.reduce_all(t, 0), tf.reduce_any(t, 1)
    tf.math.reduce_euclidean_norm(x, 1)
    tf.argmax(x, 1), tf.argmin(x, -1)
    tf.nn.l2_loss(x)
    for f in (tf.nn.softmax, tf.nn.log_softmax):
        i.gradients(f(x), x)
    logits, labels = i.real(6, 5), i.whole(5, 6, 1)[:, 0]
    i.gradients(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits), logits)
    soft = tf.nn.softmax(logits * 2.0)
    i.gradients(tf.nn.softmax_cross_entropy_with_logits(labels=soft, logits=logits), logits)
    tf.nn.top_k(x, 2)
    tf.math.in_top_k(tf.cast(logits, tf.float32), labels, 2)
    tf.unsorted_segment_sum(x, i.whole(4, 5, 4), 4)
    tf.unsorted_segment_sum(x, i.whole(4, 5, 1)[:, 0], 4)
    tf.cumsum(x, 1), tf.cumprod(x, 0), tf.reverse(x, [1]), tf.roll(x, 1, 1), tf.roll(x, [1, 2], [0, 2])
    mean, variance = tf.nn.moments(x, [0, 1])
    i.gradients(tf.nn.batch_normalization(x, mean, variance, i.fixed(3), i.fixed(3), 1e-3), x)


def layouts(i: Inputs) -> None:
    x = i.real(4, 6, 2, 3)
    for shape in ([-1, 2, 3], [24, 6] if not i.late else [-1, 6], [-1, 6, 6], [-1, 3, 2, 2, 3], [-1, 36], [-1]):
        i.gradients(tf.reshape(x, shape), x)
    rows = i.real(12, 5)
    i.gradients(tf.reshape(rows, [-1, 3, 5]), rows)
    i.gradients(tf.reshape(rows, tf.stack([tf.shape(rows)[0] // 4, 4, 5])), rows)
    i.gradients(tf.transpose(x, [1, 0, 3, 2]), x)
    i.gradients(tf.squeeze(tf.expand_dims(x, 1), [1]), x)
    tf.squeeze(tf.expand_dims(i.fixed(4, 3), -1))
    i.gradients(tf.concat([x, x * 2.0, tf.ones_like(x)], 1), x)
    i.gradients(tf.concat([x, i.real(4, 6, 2, 3)], 0), x)
    i.gradients(tf.stack([x, x * 2.0], 1), x)
    i.gradients(tf.stack(tf.unstack(x, axis=1), -1), x)
    for part in (*tf.split(x, 3, 1), *tf.split(x, [1, 5], 1)):
        i.gradients(part, x)
    i.gradients(tf.pad(x, [[0, 0], [1, 2], [0, 0], [0, 1]]), x)
    tf.pad(x, [[0, 0], [1, 2], [0, 0], [0, 1]], constant_values=2.0)
    i.gradients(tf.pad(x, [[0, 0], [1, 2], [0, 0], [0, 0]], "REFLECT"), x)
    i.gradients(tf.slice(x, [0, 1, 0, 0], [-1, 3, 2, -1]), x)
    for s in (x[:, 1], x[:, 1:3], x[..., 0], x[:, :, tf.newaxis, 1], x[1:]):
        i.gradients(s, x)
    thin = i.real(4, 1, 3)
    i.gradients(tf.tile(thin, [1, 5, 2]), thin)
    tf.broadcast_to(thin, tf.stack([tf.shape(thin)[0], 7, 3]))
    tf.fill(tf.shape(thin), tf.cast(2.0, i.dtype))
    tf.random_uniform(tf.shape(thin), seed=1)
    ids = i.whole(6, 5, 2)
    table = i.fixed(6, 4)
    i.gradients(tf.gather(table, ids), table)
    tf.gather(x, ids, axis=1)
    tf.gather(i.real(5, 4, 3), i.whole(4, 5, 2), axis=1, batch_dims=1)
    gen_array_ops.gather(table, ids)
    tf.gather_nd(table, i.whole(4, 5, 3, 2))
    tf.one_hot(ids, 6, axis=1), tf.one_hot(ids, 6)
    tf.reverse_sequence(x, i.whole(5, 4, 1)[:, 0], seq_axis=1, batch_axis=0)


def matrices(i: Inputs) -> None:
    x = i.real(4, 3, 3)
    m = tf.matmul(x, x, transpose_b=True) + 2.0 * tf.eye(3, dtype=i.dtype)
    tf.linalg.inv(m), tf.cholesky(m)
    tf.matrix_band_part(m, -1, 0), tf.linalg.diag_part(m), tf.linalg.diag_part(m, k=(-1, 0)), tf.linalg.det(m)
    tf.raw_ops.MatrixDiagPartV2(input=m, k=0, padding_value=tf.cast(0.0, i.dtype))
    d = i.real(4, 3)
    tf.linalg.diag(d), tf.linalg.diag(x, k=(-1, 1)), tf.raw_ops.MatrixDiag(diagonal=d)
    tf.raw_ops.MatrixDiagV2(diagonal=d, k=0, num_rows=3, num_cols=3, padding_value=tf.cast(0.0, i.dtype))
    tf.linalg.set_diag(m, d), tf.raw_ops.MatrixSetDiag(input=m, diagonal=d), tf.raw_ops.MatrixSetDiagV2(input=m, diagonal=d, k=0)
    tf.linalg.solve(m, x), tf.linalg.triangular_solve(m, x)


def recurrent(i: Inputs) -> None:
    if i.dtype != np.float32:
        return
    b, n, u = 5, 3, 4
    x, c, h = i.real(b, n), i.real(b, u), i.real(b, u)
    w, bias, peep = i.fixed(n + u, 4 * u), i.fixed(4 * u), i.fixed(u)
    out = gen_rnn_ops.lstm_block_cell(x, c, h, w, peep, peep, peep, bias, use_peephole=True)
    gen_rnn_ops.lstm_block_cell_grad(
        x, c, h, w, peep, peep, peep, bias, out.i, out.cs, out.f, out.o, out.ci, out.co, out.cs, out.h, use_peephole=True
    )
    wr, wc, br, bc = i.fixed(n + u, 2 * u), i.fixed(n + u, u), i.fixed(2 * u), i.fixed(u)
    g = gen_rnn_ops.gru_block_cell(x, h, wr, wc, br, bc)
    gen_rnn_ops.gru_block_cell_grad(x, h, wr, wc, br, bc, g.r, g.u, g.c, g.h)
    steps = tf.stack([x, x * 2.0, tf.cos(x)])
    length = tf.constant(3, tf.int64)
    r = gen_rnn_ops.block_lstmv2(length, steps, c, h, w, peep, peep, peep, bias)
    tf.raw_ops.BlockLSTMGradV2(
        seq_len_max=length, x=steps, cs_prev=c, h_prev=h, w=w, wci=peep, wcf=peep, wco=peep, b=bias,
        i=r.i, cs=r.cs, f=r.f, o=r.o, ci=r.ci, co=r.co, h=r.h, cs_grad=tf.cos(r.cs), h_grad=tf.cos(r.h), use_peephole=True,
    )  # fmt: skip
    for forward in (gen_rnn_ops.block_lstm, gen_rnn_ops.block_lstmv2):
        r = forward(length, steps, c, h, w, peep, peep, peep, bias)
        tf.gradients([r.cs, r.h], [steps, c, h, w, bias], grad_ys=[tf.cos(r.cs), tf.cos(r.h)])


CASES = (elementwise, by_name, contractions, ellipses, convolutions, kernels_of_float, reductions, layouts, matrices, recurrent)
NOT_IN_HALF = (by_name, recurrent, matrices, kernels_of_float)
