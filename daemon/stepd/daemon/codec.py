"""Nested dicts and lists with NumPy arrays and bytes to one blob and back: for the store and for planner
processes.

An .npz archive with a JSON skeleton: no pickle, so a damaged or forged blob can be refused but cannot run
code.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np


def dumps(value: Any, *, compress: bool = False) -> bytes:
    """Encode dicts (string keys), lists, tuples (become lists), numbers, strings, None, bytes and arrays."""
    arrays: dict[str, Any] = {}

    def plain(part: Any) -> Any:
        if isinstance(part, np.ndarray):
            arrays[f"a{len(arrays)}"] = part
            return {"__array__": len(arrays) - 1}
        if isinstance(part, bytes):
            arrays[f"a{len(arrays)}"] = np.frombuffer(part, dtype=np.uint8)
            return {"__bytes__": len(arrays) - 1}
        if isinstance(part, dict):
            return {str(key): plain(item) for key, item in part.items()}
        if isinstance(part, list | tuple):
            return [plain(item) for item in part]
        return part.item() if isinstance(part, np.generic) else part

    skeleton = json.dumps(plain(value)).encode()
    out = io.BytesIO()
    save = np.savez_compressed if compress else np.savez
    save(out, skeleton=np.frombuffer(skeleton, dtype=np.uint8), **arrays)
    return out.getvalue()


def loads(blob: bytes) -> Any:
    """Decode what `dumps` gave. ValueError: damaged."""
    try:
        with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        skeleton = json.loads(arrays.pop("skeleton").tobytes())
    except (OSError, KeyError, zipfile.BadZipFile, json.JSONDecodeError, EOFError) as error:
        raise ValueError(f"damaged blob: {error}") from error

    def rich(part: Any) -> Any:
        if isinstance(part, dict):
            if part.keys() == {"__array__"}:
                return arrays[f"a{part['__array__']}"]
            if part.keys() == {"__bytes__"}:
                return arrays[f"a{part['__bytes__']}"].tobytes()
            return {key: rich(item) for key, item in part.items()}
        return [rich(item) for item in part] if isinstance(part, list) else part

    return rich(skeleton)
