"""How far data parallelism reaches in programs of common kinds, and at which ops its regions end.

python tests/benchmarks/split_coverage.py [--programs unet ...] [--late]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parents[1] / "hook" / "rewrite"))

import numpy as np
from split_models import MODELS, Data
from split_programs import PROGRAMS
from split_training import Both, replicated, train_both

from stepd.hook.rewrite import table


def main() -> None:
    """One line a program, then the ops that regions end at, over all programs."""
    parser = argparse.ArgumentParser(description="Where regions of data parallelism end.")
    parser.add_argument("--programs", nargs="+", default=sorted(PROGRAMS), choices=sorted(PROGRAMS))
    parser.add_argument("--types", nargs="+", default=["float32", "float64"], choices=["float32", "float64"])
    parser.add_argument("--late", action="store_true", help="the batch size is known at run time only")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    MODELS.update(PROGRAMS)
    total: Counter[str] = Counter()
    for name in options.programs:
        for dtype in map(np.dtype, options.types):
            both = train_both(name, Data(dtype, 6, options.late), options.steps, replicated((1.0, 2.0)), nudge=True)
            total += report(f"{name:12s} {dtype.name}", both)
    print("regions end at: " + ", ".join(f"{op} {count}" for op, count in total.most_common()))


def report(what: str, both: Both) -> Counter[str]:
    """Print what came of one program; returns the op types that read what parts hold, and are whole."""
    nodes = both.facts.view.nodes
    heavy = [name for name in both.facts.order if nodes[name].op in table.HEAVY]
    split = sum(name in both.chosen for name in heavy)
    ends = Counter(nodes[reader].op for _, reader in dict.fromkeys(both.joined()))
    cuts = Counter(nodes[name].op if name in nodes else "?" for name in both.cuts())
    print(
        f"{what}: {split} of {len(heavy)} products, {len(both.chosen)} of {len(nodes)} ops in parts; "
        f"losses differ by {both.difference:.1e}, nudged by {both.chaos:.1e}\n"
        f"    joined for {dict(ends)}; cut behind {dict(cuts)}; whole: "
        f"{[name for name in heavy if name not in both.chosen]}",
        flush=True,
    )
    return ends


if __name__ == "__main__":
    main()
