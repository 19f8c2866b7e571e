"""Builds the problem zoo: TensorFlow training graphs of the papers' models, costed for the papers' machines, as .json.gz.

    python tests/benchmarks/build_zoo.py [--out build/zoo] [--only SUBSTRING ...] [--list]

Needs the extra `cpu`. Graphs are built and never run; a problem that is there already is left alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, str(Path(__file__).parent))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/zoo"))
    parser.add_argument("--only", nargs="*", default=[""], help="build problems whose name holds one of these")
    parser.add_argument("--list", action="store_true", help="print the names and build nothing")
    arguments = parser.parse_args()

    from zoo.catalogue import ENTRIES, name_of, problem

    from stepd.core.problem_format import dump_problem

    arguments.out.mkdir(parents=True, exist_ok=True)
    for entry in ENTRIES:
        name = name_of(entry)
        path = arguments.out / f"{name}.json.gz"
        if not any(part in name for part in arguments.only):
            continue
        if arguments.list:
            print(name)
            continue
        if path.exists():
            continue
        began = time.perf_counter()
        built = problem(entry)
        partial = path.with_suffix(".partial")
        partial.write_bytes(gzip.compress(json.dumps(dump_problem(built), separators=(",", ":")).encode(), 6, mtime=0))
        partial.replace(path)
        seconds = time.perf_counter() - began
        print(f"{name}: {built.n_ops} ops, {len(built.edge_src)} edges, {built.n_devices} devices ({seconds:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
