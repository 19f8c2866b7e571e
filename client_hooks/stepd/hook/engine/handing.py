"""Ops that hand a value on as it is, or stand for one to be waited for, and that Grappler lets be. Pure.

The former stands between two of the program's where the hook needs a place: for a control edge, or for a name that sorts elsewhere.
It is a DebugGradientIdentity: the kernel of an identity, on every kind of device, and the shape of what it is given, also one that
is known only by being the same as another's, without which Grappler would not make one sum of those behind it. Identities,
EnsureShape, PreventGradient and IdentityN it takes out, and a PlaceholderWithDefault hides the shape. Behind a cast it is one all
the same: what hands a value on changes places with a cast, under another name.
"""

from __future__ import annotations

from tensorflow.core.framework import node_def_pb2, types_pb2


def handing_on(name: str, source: str, dtype: int, device: str, behind_cast: bool = False) -> node_def_pb2.NodeDef:
    """A node called `name` on `device` that hands on `source`, an input's name, of type `dtype`."""
    op = "PlaceholderWithDefault" if behind_cast else "DebugGradientIdentity"
    node = node_def_pb2.NodeDef(name=name, op=op, input=[source], device=device)
    node.attr["dtype" if behind_cast else "T"].type = dtype
    if behind_cast:
        node.attr["shape"].shape.unknown_rank = True
    return node


def nothing(name: str, device: str, wait: str = "") -> node_def_pb2.NodeDef:
    """A constant called `name` on `device`, for `waited_for`, that comes after `wait`, an input's name."""
    node = node_def_pb2.NodeDef(name=name, op="Const", device=device, input=[wait] if wait else [])
    node.attr["dtype"].type = types_pb2.DT_FLOAT
    node.attr["value"].tensor.dtype = types_pb2.DT_FLOAT
    node.attr["value"].tensor.float_val.append(0.0)
    return node


def unneeded(name: str, source: str, dtype: int, device: str) -> node_def_pb2.NodeDef:
    """A node called `name` on `device` that reads `source` for nobody: Grappler makes a wait of it, and of `source` where nobody
    else reads that."""
    node = node_def_pb2.NodeDef(name=name, op="Identity", input=[source], device=device)
    node.attr["T"].type = dtype
    return node


def waited_for(name: str, constant: node_def_pb2.NodeDef) -> node_def_pb2.NodeDef:
    """A node called `name` beside `constant` that hands it on, and might be fed: Grappler takes no wait for it out."""
    return handing_on(name, constant.name, types_pb2.DT_FLOAT, constant.device, behind_cast=True)
