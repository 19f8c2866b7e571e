"""A graph that cannot be mirrored: the session runs on it as if there were no hook."""

from __future__ import annotations

from typing import Any

import pytest

tf = pytest.importorskip("tensorflow.compat.v1")
from tensorflow.core.framework import attr_value_pb2  # noqa: E402


def error_of_a_product_whose_shapes_do_not_fit() -> str:
    """The program has changed an op so that it can no longer be computed, nor imported: TensorFlow says so when it runs."""
    with tf.Graph().as_default():
        x = tf.ones([3, 4], name="x")
        product = tf.matmul(x, x, transpose_b=True, name="product")
        product.op._set_attr("transpose_b", attr_value_pb2.AttrValue(b=False))
        with tf.Session() as session:
            with pytest.raises(tf.errors.InvalidArgumentError) as refused:
                session.run(product)
            assert session.run(x).shape == (3, 4)
    return str(refused.value.message).partition("Node: ")[2].partition("Original stack trace")[0]


def test_what_cannot_be_mirrored_runs_and_fails_as_it_does_plainly(hooked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = error_of_a_product_whose_shapes_do_not_fit()
    listener, opened = hooked(), list[Any]()
    monkeypatch.setattr(listener, "session_opened", lambda engine: (opened.append(engine), listener.engines.append(engine)))
    assert error_of_a_product_whose_shapes_do_not_fit() == plain
    assert "size-incompatible" in plain and len(opened) == 1 and not opened[0].ran
