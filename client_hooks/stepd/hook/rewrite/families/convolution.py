"""Convolutions, their gradients, biases, pooling and normalization: batch, output channels, input channels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stepd.hook.rewrite.families.elementwise import units
from stepd.hook.rewrite.slots import FIRST, OPAQUE, PARTIAL, WHOLE, Slot, Way, cut, sizes

if TYPE_CHECKING:
    from stepd.hook.rewrite.facts import Dims, OpFacts


def channels(op: OpFacts, rank: int) -> int:
    """The axis of the channels by the op's data format."""
    return 1 if op.text("data_format").startswith("NC") else rank - 1


def _grouped(op: OpFacts, image: Dims | None, kernel: Dims | None, axis: int) -> bool:
    """Whether the channels are convolved in groups, or that is not known."""
    if image is None or kernel is None:
        return True
    return image[axis] != kernel[-2] or not isinstance(kernel[-2], int)


def forward(op: OpFacts) -> Iterator[Way]:
    """Conv2D, Conv3D: (image, filter)."""
    image, kernel = op.dims(0), op.dims(1)
    rank = len(image or kernel or ())
    if not rank:
        return
    c, last = channels(op, rank), rank - 1
    yield Way("0", (cut(0), WHOLE), (cut(0),), units(image[0]) if image else 0)
    if not _grouped(op, image, kernel, c):
        assert kernel is not None
        yield Way(str(c), (WHOLE, cut(last)), (cut(c),), units(kernel[-1]))
        yield Way("inner", (cut(c), cut(last - 1)), (PARTIAL,), units(kernel[-2]))


def image_gradient(op: OpFacts) -> Iterator[Way]:
    """Conv*BackpropInput: (sizes of the image, filter, gradient)."""
    kernel, gradient, length = op.dims(1), op.dims(2), op.dims(0)
    image = op.out()
    if gradient is None:
        return
    rank = len(gradient)
    c, last = channels(op, rank), rank - 1
    full = length == (rank,)
    yield Way("0", (sizes(0) if full else WHOLE, WHOLE, cut(0)), (cut(0),), units(gradient[0]))
    if full and kernel is not None and image is not None and image[c] == kernel[-2]:
        yield Way(str(c), (sizes(c), cut(last - 1), WHOLE), (cut(c),), units(kernel[-2]))
        yield Way("inner", (WHOLE, cut(last), cut(c)), (PARTIAL,), units(kernel[-1]))


def filter_gradient(op: OpFacts) -> Iterator[Way]:
    """Conv*BackpropFilter: (image, sizes of the filter, gradient)."""
    image, gradient = op.dims(0), op.dims(2)
    if image is None or gradient is None:
        return
    rank = len(image)
    c, last = channels(op, rank), rank - 1
    kernel = op.out()
    yield Way("inner", (cut(0), WHOLE, cut(0)), (PARTIAL,), units(image[0]))
    if kernel is not None and kernel[-2] > 0 and image[c] == kernel[-2]:
        yield Way(str(last), (WHOLE, sizes(last), cut(c)), (cut(last),), units(gradient[c]))
        yield Way(str(last - 1), (cut(c), sizes(last - 1), WHOLE), (cut(last - 1),), units(image[c]))


def depthwise(op: OpFacts) -> Iterator[Way]:
    """DepthwiseConv2dNative: every input channel has its own filters."""
    image, kernel = op.dims(0), op.dims(1)
    if image is None or kernel is None:
        return
    c = channels(op, 4)
    yield Way("0", (cut(0), WHOLE), (cut(0),), units(image[0]))
    if isinstance(kernel[3], int) and isinstance(kernel[2], int):
        yield Way(str(c), (cut(c), cut(2)), (cut(c, kernel[3]),), kernel[2])


def depthwise_image_gradient(op: OpFacts) -> Iterator[Way]:
    """DepthwiseConv2dNativeBackpropInput: (sizes of the image, filter, gradient)."""
    kernel, gradient = op.dims(1), op.dims(2)
    if kernel is None or gradient is None:
        return
    c = channels(op, 4)
    yield Way("0", (sizes(0), WHOLE, cut(0)), (cut(0),), units(gradient[0]))
    if isinstance(kernel[3], int) and isinstance(kernel[2], int):
        yield Way(str(c), (sizes(c), cut(2), cut(c, kernel[3])), (cut(c),), kernel[2])


def depthwise_filter_gradient(op: OpFacts) -> Iterator[Way]:
    """DepthwiseConv2dNativeBackpropFilter: (image, sizes of the filter, gradient)."""
    image, kernel = op.dims(0), op.out()
    if image is None:
        return
    c = channels(op, 4)
    yield Way("inner", (cut(0), WHOLE, cut(0)), (PARTIAL,), units(image[0]))
    if kernel is not None and kernel[2] > 0 and kernel[3] > 0:
        yield Way("2", (cut(c), sizes(2), cut(c, kernel[3])), (cut(2),), kernel[2])


def bias(op: OpFacts) -> Iterator[Way]:
    """BiasAdd: (values, bias of the channels)."""
    dims = op.dims(0)
    for axis, dim in enumerate(dims or ()):
        c = channels(op, len(dims or ()))
        yield Way(str(axis), (cut(axis), cut(0) if axis == c else WHOLE), (cut(axis),), units(dim))


def bias_gradient(op: OpFacts) -> Iterator[Way]:
    """BiasAddGrad: the sum over everything but the channels."""
    dims = op.dims(0)
    for axis, dim in enumerate(dims or ()):
        if axis == channels(op, len(dims or ())):
            yield Way("0", (cut(axis),), (cut(0),), units(dim))
        else:
            yield Way(f"in{axis}", (cut(axis),), (PARTIAL,), units(dim))


def pooling(op: OpFacts) -> Iterator[Way]:
    """Pooling and its gradients: batch and channels; sizes of the image come first where they do, window sizes stay whole."""
    ranks = [op.rank(k) for k in range(len(op.inputs))]
    rank = max((r for r in ranks if r is not None), default=0)
    if rank < 4 or None in ranks:
        return
    window = list(op.attr("ksize").list.i)
    for axis in (0, channels(op, rank)):
        if window[axis] != 1 if window else axis != 0:
            continue  # windows that reach over the axis, or are known at run time only
        slots: list[Slot] = []
        most = 0
        for index, own in enumerate(ranks):
            if own == rank:
                dims = op.dims(index)
                most = most or (units(dims[axis]) if dims else 0)
                slots.append(cut(axis))
            else:
                slots.append(sizes(axis) if index == 0 else WHOLE)
        yield Way(str(axis), tuple(slots), (cut(axis),), most)


def local_response(op: OpFacts) -> Iterator[Way]:
    """LRN and its gradient: neighbours among the channels only."""
    for axis, dim in enumerate((op.dims(0) or ())[:3]):
        yield Way(str(axis), (cut(axis),) * len(op.inputs), (cut(axis),), units(dim))


def by_image(op: OpFacts) -> Iterator[Way]:
    """Ops that treat every image alike: (images, whole settings...)."""
    dims = op.dims(0)
    if dims:
        yield Way("0", (cut(0), *(WHOLE,) * (len(op.inputs) - 1)), (cut(0),), units(dims[0]))


def resize(op: OpFacts) -> Iterator[Way]:
    """Resizing: (images, size): batch and channels."""
    dims = op.dims(0)
    for axis in (0, 3) if dims and len(dims) == 4 else ():
        yield Way(str(axis), (cut(axis), WHOLE), (cut(axis),), units(dims[axis]) if dims else 0)


def resize_gradient(op: OpFacts) -> Iterator[Way]:
    """ResizeBilinearGrad and ResizeBicubicGrad: (gradient, original images)."""
    dims = op.dims(0)
    for axis in (0, 3) if dims and len(dims) == 4 else ():
        yield Way(str(axis), (cut(axis), cut(axis)), (cut(axis),), units(dims[axis]) if dims else 0)


def normalization(op: OpFacts) -> Iterator[Way]:
    """FusedBatchNorm in all versions: channels only. The batch passes through uncut: the statistics are of all of it."""
    dims = op.dims(0)
    if dims is None or len(dims) < 4:
        return
    c = channels(op, len(dims))
    per_channel = tuple(WHOLE if op.dims(k) == (0,) else cut(0) for k in range(1, len(op.inputs)))
    outputs = (cut(c), *(cut(0),) * 4, *(OPAQUE,) * (op.n_outputs() - 5))
    yield Way(str(c), (cut(c), *per_channel), outputs, units(dims[c]))
    yield Way("0", (cut(0), *(WHOLE,) * len(per_channel)), (cut(0), *(WHOLE,) * (len(outputs) - 1)), usable=False)


def normalization_gradient(op: OpFacts) -> Iterator[Way]:
    """FusedBatchNormGrad in all versions: (gradient, input, scale, two statistics, reserve)."""
    dims = op.dims(0)
    if dims is None or len(dims) < 4:
        return
    c = channels(op, len(dims))
    rest = len(op.inputs) - 5
    slots = (cut(c), cut(c), *(cut(0),) * 3, *(OPAQUE,) * rest)
    yield Way(str(c), slots, (cut(c), cut(0), cut(0), FIRST, FIRST), units(dims[c]))
    yield Way("0", (cut(0), cut(0), *(WHOLE,) * (3 + rest)), (cut(0), *(WHOLE,) * 4), usable=False)
