"""NodeDefs of cuts and joins. It knows TensorFlow's ops and the shares of the parts, and nothing of graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tensorflow.core.framework import node_def_pb2, types_pb2
from tensorflow.python.framework import dtypes, tensor_util

from stepd.hook.rewrite.slots import Array, Dim, Held

_INT32 = types_pb2.DT_INT32


def pieces(units: int, bounds: Sequence[int]) -> list[int]:
    """How many of `units` each part gets: those between its bounds, rounded to the nearest."""
    edges = [(2 * units * b + bounds[-1]) // (2 * bounds[-1]) for b in bounds]
    return [end - begin for begin, end in pairwise(edges)]


class Maker:
    """Makes nodes called "<stem>-<what>" on one device."""

    def __init__(self, stem: str, device: str, into: list[Any]) -> None:
        self._stem = stem
        self._device = device
        self._into = into

    def node(self, what: str, op: str, inputs: Sequence[str], attrs: Mapping[str, Any], name: str = "") -> str:
        """Add one node; returns its name. Integers in `attrs` that name types have keys that begin with T, or "dtype"."""
        made = node_def_pb2.NodeDef(name=name or f"{self._stem}-{what}", op=op, device=self._device, input=inputs)
        for key, value in attrs.items():
            if isinstance(value, list):
                made.attr[key].list.type.extend(value)
            elif key in _TYPES:
                made.attr[key].type = value
            else:
                made.attr[key].i = value
        self._into.append(made)
        return made.name

    def constant(self, what: str, array: Array) -> str:
        """A constant of `array`."""
        made = node_def_pb2.NodeDef(name=f"{self._stem}-{what}", op="Const", device=self._device)
        made.attr["dtype"].type = dtypes.as_dtype(array.dtype).as_datatype_enum
        made.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(array, shape=array.shape))
        self._into.append(made)
        return str(made.name)

    def number(self, what: str, value: int, dtype: int) -> str:
        """A scalar constant of a TensorFlow type."""
        return self.constant(what, np.array(value, dtypes.as_dtype(dtype).as_numpy_dtype))

    def beside(self, what: str, device: str) -> Maker:
        """Makes nodes of "<stem>-<what>" on another device."""
        return Maker(f"{self._stem}-{what}", device, self._into)

    def reshaped(self, what: str, tensor: str, shape: str, dtype: int, name: str = "") -> str:
        """`tensor` in other dimensions."""
        return self.node(what, "Reshape", [tensor, shape], {"T": dtype, "Tshape": _INT32}, name)

    def concatenated(self, what: str, tensors: Sequence[str], axis: int, dtype: int, name: str = "") -> str:
        """Tensors in a row."""
        along = self.constant("axis", np.array(axis, np.int32))
        return self.node(what, "ConcatV2", [*tensors, along], {"T": dtype, "Tidx": _INT32, "N": len(tensors)}, name)

    # -- cuts ---------------------------------------------------------------------------------------------------------

    def cut(self, tensor: str, dtype: int, held: Held, bounds: Sequence[int], size: int | None) -> tuple[str, ...]:
        """Pieces of `tensor` along an axis whose size is `size`, or known at run time only."""
        parts = len(bounds) - 1
        axis = self.constant("axis", np.array(held.axis, np.int32))
        if size is not None and size % held.grain == 0:
            counts = [count * held.grain for count in pieces(size // held.grain, bounds)]
            if len(set(counts)) == 1:
                name = self.node("split", "Split", [axis, tensor], {"T": dtype, "num_split": parts})
                return _outputs(name, parts)
            sizes = self.constant("sizes", np.array(counts, np.int32))
        else:
            shape = self.node("shape", "Shape", [tensor], {"T": dtype, "out_type": _INT32})
            sizes = self._run_time_pieces(self._element(shape, held.axis, _INT32), _INT32, held.grain, bounds)
        attrs = {"T": dtype, "Tlen": _INT32, "num_split": parts}
        return _outputs(self.node("split", "SplitV", [tensor, sizes, axis], attrs), parts)

    def cut_sizes(
        self,
        tensor: str,
        dtype: int,
        held: Held,
        bounds: Sequence[int],
        dims: Sequence[Dim] | None,
        value: Sequence[Dim | None] | None,
    ) -> tuple[str, ...]:
        """The size vector of each part: `tensor` with the piece's size in one element; -1 ("whatever is left") stays."""
        number = value[held.axis] if value is not None else None
        if value is not None and all(isinstance(v, int) for v in value) and isinstance(number, int):
            known = np.array(value, dtypes.as_dtype(dtype).as_numpy_dtype)
            return tuple(self._known_sizes(known, held, count, k) for k, count in enumerate(pieces(number // held.grain, bounds)))
        if dims is None or not isinstance(dims[0], int):
            raise AssertionError(f"{tensor}: a size vector of unknown length was to be cut")
        size = self._element(tensor, held.axis, dtype)
        counts = self._run_time_pieces(size, dtype, held.grain, bounds)
        smaller = self.node("smaller", "Sub", [counts, size], {"T": dtype})
        free = self.node("free", "Less", [size, self.number("zero", 0, dtype)], {"T": dtype})
        none = self.node("none", "ZerosLike", [counts], {"T": dtype})
        change = self.node("change", "SelectV2", [free, none, smaller], {"T": dtype})
        here = np.zeros((1, dims[0]), dtypes.as_dtype(dtype).as_numpy_dtype)
        here[0, held.axis] = 1
        spot = self.constant("spot", here)
        column = self.node(
            "column", "ExpandDims", [change, self.constant("last", np.array(1, np.int32))], {"T": dtype, "Tdim": _INT32}
        )
        changes = self.node("changes", "Mul", [column, spot], {"T": dtype})
        vectors = self.node("vectors", "AddV2", [changes, tensor], {"T": dtype})
        parts = len(bounds) - 1
        return _outputs(self.node("rows", "Unpack", [vectors], {"T": dtype, "num": parts, "axis": 0}), parts)

    def _known_sizes(self, known: Array, held: Held, count: int, k: int) -> str:
        own = known.copy()
        if own[held.axis] >= 0:
            own[held.axis] = count * held.grain
        return self.constant(f"sizes{k}", own)

    def _element(self, vector: str, index: int, dtype: int) -> str:
        at = [self.constant(f"at{k}", np.array([v], np.int32)) for k, v in enumerate((index, index + 1, 1))]
        attrs = {"T": dtype, "Index": _INT32, "shrink_axis_mask": 1}
        return self.node("size", "StridedSlice", [vector, *at], attrs)

    def _run_time_pieces(self, size: str, dtype: int, grain: int, bounds: Sequence[int]) -> str:
        """`pieces` in the graph: a vector of the parts' sizes."""
        kind = {"T": dtype}
        as_type = dtypes.as_dtype(dtype).as_numpy_dtype
        wide = types_pb2.DT_INT64
        units = self.node("units", "FloorDiv", [size, self.number("grain", grain, dtype)], kind)
        units = self.node("units64", "Cast", [units], {"SrcT": dtype, "DstT": wide})
        total, half = self.number("total", 2 * bounds[-1], wide), self.number("half", bounds[-1], wide)
        edges = []
        for what, values in (("ends", bounds[1:]), ("begins", bounds[:-1])):
            factors = self.constant(what, 2 * np.array(values, np.int64))
            scaled = self.node(f"{what}-scaled", "Mul", [units, factors], {"T": wide})
            nearest = self.node(f"{what}-nearest", "AddV2", [scaled, half], {"T": wide})
            edges.append(self.node(f"{what}-edge", "FloorDiv", [nearest, total], {"T": wide}))
        counts = self.node("counts", "Sub", edges, {"T": wide})
        counts = self.node("counts-cast", "Cast", [counts], {"SrcT": wide, "DstT": dtype})
        return self.node("pieces", "Mul", [counts, self.constant("grains", np.array(grain, as_type))], kind)

    # -- parts of nothing ---------------------------------------------------------------------------------------------

    def at_least_one_row(self, tensor: str, dtype: int, rank: int, axis: int) -> tuple[str, str]:
        """(`tensor` with a row of zeros when it has none along `axis`, how many it had). Padding by nothing copies nothing.

        Not by Pad: oneDNN joins that with a convolution into a kernel that gives a wrong shape for an empty batch.
        """
        kind = {"T": _INT32}
        shape = self.node("shape", "Shape", [tensor], {"T": dtype, "out_type": _INT32})
        rows = self._element(shape, axis, _INT32)
        lacking = self.node("lacking", "Sub", [self.number("one", 1, _INT32), rows], kind)
        missing = self.node("missing", "Maximum", [lacking, self.number("none", 0, _INT32)], kind)
        where = np.zeros((rank, 2), np.int32)
        where[axis, 1] = 1
        paddings = self.node("paddings", "Mul", [missing, self.constant("where", where)], kind)
        zero = self.number("zero", 0, dtype)
        return self.node("padded", "PadV2", [tensor, paddings, zero], {"T": dtype, "Tpaddings": _INT32}), rows

    def first_rows(self, tensor: str, dtype: int, rows: str, rank: int, axis: int) -> str:
        """The first `rows` rows along `axis`; all of them are passed on without a copy."""
        kind = {"T": _INT32}
        first = np.zeros(rank, np.int32)
        first[axis] = 1
        scaled = self.node("extent", "Mul", [rows, self.constant("first", first)], kind)
        size = self.node("extents", "Sub", [scaled, self.constant("others", 1 - first)], kind)
        begin = self.constant("begin", np.zeros(rank, np.int32))
        return self.node("rows", "Slice", [tensor, begin, size], {"T": dtype, "Index": _INT32})

    # -- joins --------------------------------------------------------------------------------------------------------

    def join(self, final: str, parts: Sequence[str], dtype: int, held: Held, rank: int | None) -> None:
        """The whole of what `parts` hold, as a node called `final`. How terms of sums are added up: `sums`."""
        count = len(parts)
        if held.kind == "cut":
            self.concatenated("", parts, held.axis, dtype, final)
        elif held.kind == "sizes":
            total = self.node("total", "AddN", parts, {"T": dtype, "N": count})
            assert rank == 1
            self._spliced(final, total, parts[0], dtype, held.axis)
        else:
            self.node("", "Identity", [parts[0]], {"T": dtype}, final)

    def _spliced(self, final: str, total: str, like: str, dtype: int, index: int) -> None:
        """`like` with the element `index` of `total`: concatenated from three slices, whatever the length."""
        zero, here, after = (np.array([v], np.int32) for v in (0, index, index + 1))
        attrs = {"T": dtype, "Index": _INT32}
        names = [self.constant(what, v) for what, v in (("zero", zero), ("here", here), ("after", after))]
        one = self.constant("one", np.array([1], np.int32))
        head = self.node("head", "StridedSlice", [like, names[0], names[1], one], attrs)
        middle = self.node("middle", "StridedSlice", [total, names[1], names[2], one], attrs)
        tail = self.node("tail", "StridedSlice", [like, names[2], names[0], one], {**attrs, "end_mask": 1})
        self.concatenated("", [head, middle, tail], 0, dtype, final)

    def all_of(self, tensors: Sequence[str], types: Sequence[int]) -> None:
        """All outputs of a split op, under its own name."""
        self.node("", "IdentityN", tensors, {"T": list(types)}, self._stem)

    def count(self, values: Sequence[str], result: str, dtype: int, devices: Sequence[str]) -> str:
        """How many elements of all pieces `values` make one of `result`, as a number of the type."""
        counted = []
        for k, (value, device) in enumerate(zip(values, devices, strict=True)):
            near = Maker(self._stem, device, self._into)
            counted.append(near.node(f"size{k}", "Size", [value], {"T": dtype, "out_type": types_pb2.DT_INT64}))
        total = self.node("total", "AddN", counted, {"T": types_pb2.DT_INT64, "N": len(counted)})
        size = self.node("each", "Size", [result], {"T": dtype, "out_type": types_pb2.DT_INT64})
        wide = {"SrcT": types_pb2.DT_INT64, "DstT": dtype}
        above, below = (self.node(f"{what}-cast", "Cast", [value], wide) for what, value in (("total", total), ("each", size)))
        return self.node("number", "RealDiv", [above, below], {"T": dtype})


_TYPES = frozenset({"T", "Tshape", "Tlen", "Tidx", "Tdim", "SrcT", "DstT", "dtype", "out_type", "Index", "Tpaddings"})


def _outputs(name: str, count: int) -> tuple[str, ...]:
    return tuple(name if k == 0 else f"{name}:{k}" for k in range(count))
