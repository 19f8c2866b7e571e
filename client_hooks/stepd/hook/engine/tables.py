"""How the pairs of a lookup table get into another session's, in the order in which the table tells them.

Programs see that order in what they export, and in checkpoints. It must not know sessions, nor where the pairs come from.
"""

from __future__ import annotations

from tensorflow.core.framework import types_pb2

from stepd.hook.engine.state import MUTABLE_TABLES, Carrier

# std::unordered_map in all versions of TensorFlow: a new pair comes to the front, of its bucket or of all.
_LAST_FIRST = frozenset({"MutableHashTableV2", "MutableHashTableOfTensorsV2"})


def put(carrier: Carrier, name: str, kind: str, table: str, pairs: tuple[str, str], dtypes: tuple[int, int]) -> str:
    """Add what puts `pairs` (tensors of keys and values, of `dtypes`) into `table`, made by an op of type `kind`; the op to run.

    A table that had more pairs, before some were removed, so that it has more buckets than these need, gets fewer of them, and may
    tell another order.
    """
    if kind not in MUTABLE_TABLES:
        return str(carrier.node(name, "InitializeTableV2", [table, *pairs], Tkey=dtypes[0], Tval=dtypes[1]).name)
    types = {"Tin": dtypes[0], "Tout": dtypes[1]}
    if kind not in _LAST_FIRST:
        return str(carrier.node(name, "LookupTableImportV2", [table, *pairs], **types).name)
    axis = carrier.node(f"{name}/axis", "Const", [], dtype=types_pb2.DT_INT32)
    tensor = axis.attr["value"].tensor
    tensor.dtype = types_pb2.DT_INT32
    tensor.tensor_shape.dim.add().size = 1
    tensor.int_val.append(0)
    turned = [
        str(carrier.node(f"{name}/{k}", "ReverseV2", [pair, axis.name], T=dtype, Tidx=types_pb2.DT_INT32).name)
        for k, (pair, dtype) in enumerate(zip(pairs, dtypes, strict=True))
    ]
    # Growing turns the order round. The second time all buckets are there: importing clears a table and leaves it its size.
    grown = carrier.node(f"{name}/grown", "LookupTableImportV2", [table, *turned], **types)
    return str(carrier.node(name, "LookupTableImportV2", [table, *turned, f"^{grown.name}"], **types).name)
