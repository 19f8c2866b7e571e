"""Losses of every model of the split tests over many steps, plainly and in parts; and plainly with inputs that are one unit
in the last place larger: what training itself makes of a rounding.

python tests/benchmarks/split_equality.py [--steps 100] [--models lenet ...]
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1] / "hook" / "rewrite"))

import numpy as np
from split_models import MODELS, Data
from split_training import replicated, sliced, train_both

WAYS = {
    "batch": replicated((1.0, 2.0)),
    "columns": sliced((1.0, 2.0), columns=True),
    "rows": sliced((1.0, 2.0), columns=False),
}


def main() -> None:
    """Print one line a model and type."""
    parser = argparse.ArgumentParser(description="Losses with ops in parts against losses without.")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--types", nargs="+", default=["float64", "float32"], choices=["float64", "float32"])
    parser.add_argument("--models", nargs="+", default=sorted(MODELS), choices=sorted(MODELS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), help="what dense layers are cut along")
    options = parser.parse_args()
    for model in options.models:
        for dtype in map(np.dtype, options.types):
            for way, late in itertools.product(options.ways, (False, True)):
                data = Data(dtype, 6, late)
                data.layers = 2
                both = train_both(model, data, options.steps, WAYS[way], nudge=True)
                size = "late" if late else "static"
                what = f"{model:10s} {dtype.name} {size:6s} {way:7s} {len(both.chosen):4d} ops in parts"
                print(f"{what}, losses differ by {both.difference:.1e}, nudged by {both.chaos:.1e}", flush=True)


if __name__ == "__main__":
    main()
