"""Ten thousand random switches in one process over a training loop with a queue, an iterator, dropout and Adam.

    python tests/benchmarks/soak_switches.py [--switches 10000] [--every 1] [--way in-session] [--devices 3] [--seed 1]

The same loop runs plain in a second process; each step's values must be equal to the bit. Prints one JSON object (switches by
way, different steps, resident memory over time, threads, files and sockets) and one line of facts. Exit status 1 when a value
differs or something leaks. A switch takes about 0.1 s: 10,000 are about 20 minutes of two cores.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

# Beyond what the session holds when it is full of copies for the first time: what the allocator keeps in pieces (measured: see
# docs/benchmarks.md). Ten thousand switches without compaction need gigabytes.
LEAK_BYTES = 200 << 20
WARM_UP = 0.1  # of the steps
SAMPLES = 40


def loop(steps: int, out: str) -> None:
    """The training loop itself: knows nothing of switches. Writes one digest a step, and figures every hundredth."""
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    data = tf.data.Dataset.range(1 << 30).map(lambda i: tf.cast(i % 97, tf.float32) / 97.0).shuffle(64, seed=1).batch(8)
    x = tf.reshape(tf.data.make_one_shot_iterator(data).get_next(), [8, 1])
    queue = tf.FIFOQueue(16, tf.float32, shapes=[[8, 1]])
    put, taken = queue.enqueue(x * 2.0), queue.dequeue()
    w = tf.get_variable("w", [1, 16], initializer=tf.glorot_uniform_initializer(seed=1))
    v = tf.get_variable("v", [16, 1], initializer=tf.glorot_uniform_initializer(seed=2), use_resource=True)
    hidden = tf.nn.dropout(tf.nn.relu(tf.matmul(taken, w)), rate=0.5, seed=3)
    loss = tf.reduce_mean(tf.square(tf.matmul(hidden, v) - 1.0))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.001).minimize(loss, step)
    with tf.Session() as sess, Path(out).open("w") as file:
        sess.run(tf.global_variables_initializer())
        start = time.monotonic()
        for k in range(steps):
            sess.run(put)
            # The state in a run of its own: beside the training step nothing orders reads and writes, plainly either.
            values = [sess.run([loss, train])[0], *sess.run([step, w, v])]
            digest = hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()[:16]
            note: dict[str, Any] = {"digest": digest}
            if k % max(1, steps // SAMPLES) == 0:
                note |= figures() | {"step": k, "seconds": round(time.monotonic() - start, 1)}
            file.write(json.dumps(note) + "\n")
    gc.collect()
    with Path(out).open("a") as file:
        file.write(json.dumps(figures() | {"end": True}) + "\n")


def figures() -> dict[str, int]:
    """What this process holds: resident bytes, threads of Python and of the system, files, sockets."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:
            continue  # the folder's own handle
    return {
        "resident": int(fields["VmRSS"].split()[0]) * 1024,
        "threads": int(fields["Threads"]),
        "python_threads": threading.active_count(),
        "files": len(links),
        "sockets": sum(link.startswith("socket") for link in links),
    }


def start(steps: int, out: Path, chaos: str, report: Path) -> subprocess.Popen[bytes]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("STEPD_")}
    env |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    if chaos:
        env |= {"STEPD_ENABLE": "1", "STEPD_DAEMON": "0", "STEPD_CHAOS": chaos, "STEPD_REPORT": str(report)}
    return subprocess.Popen([sys.executable, __file__, "--loop", str(steps), str(out)], env=env)


def judge(plain: list[dict[str, Any]], chaos: list[dict[str, Any]], events: list[dict[str, Any]]) -> dict[str, Any]:
    """The verdict and the figures behind it."""
    pairs = zip(plain[:-1], chaos[:-1], strict=True)
    different = [k for k, (a, b) in enumerate(pairs) if a["digest"] != b["digest"]]
    samples = [note for note in chaos if "resident" in note]
    switched = [e for e in events if e["event"] == "switch"]
    warm = [s for s in samples[:-1] if s["step"] >= WARM_UP * len(chaos)]
    settled, last = max(warm[: len(warm) // 4 + 1], key=lambda s: s["resident"]), samples[-2]
    waits = sorted(float(e.get("wait_seconds", 0)) for e in switched)
    result = {
        "steps": len(plain) - 1,
        "switches": sum(bool(e.get("ok")) for e in switched),
        "by_restart": sum(bool(e.get("ok")) and e.get("way") == "restart" for e in switched),
        "refused": sum(not e.get("ok") for e in switched),
        "rolled_back": sum(bool(e.get("rollback")) for e in switched),
        "different_steps": len(different),
        "first_different": different[:1],
        "wait_seconds_median": waits[len(waits) // 2] if waits else None,
        "wait_seconds_worst": waits[-1] if waits else None,
        "resident_mb": [s["resident"] >> 20 for s in samples[:: max(1, len(samples) // 12)]],
        "resident_mb_plain": [s["resident"] >> 20 for s in plain if "resident" in s][-2:],
        "settled": settled,
        "last": last,
        "after_close": chaos[-1],
    }
    grown = last["resident"] - settled["resident"]
    counts_grow = any(last[k] > settled[k] + 2 for k in ("python_threads", "files", "sockets"))
    result["facts"] = (
        f"{result['switches']} switches ({result['by_restart']} by restart), {len(different)} of {result['steps']} steps differ; "
        f"resident MB at start, middle, end: {samples[0]['resident'] >> 20}, {samples[len(samples) // 2]['resident'] >> 20}, "
        f"{last['resident'] >> 20} (plain: {result['resident_mb_plain'][-1]}); threads {settled['threads']} -> {last['threads']}, "
        f"files {settled['files']} -> {last['files']}, sockets {settled['sockets']} -> {last['sockets']}"
    )
    result["ok"] = not different and grown < LEAK_BYTES and not counts_grow and result["switches"] > 0
    return result


def main() -> int:
    if sys.argv[1:2] == ["--loop"]:
        loop(int(sys.argv[2]), sys.argv[3])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--switches", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--way", default="in-session", choices=["in-session", "restart", "both"])
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chaos = f"switch-every={args.every},way={args.way},seed={args.seed},devices={args.devices}"
    steps = max(args.switches * args.every // 3, 50)  # three runs a step
    with tempfile.TemporaryDirectory() as folder:
        outs, report = [Path(folder, "plain"), Path(folder, "chaos")], Path(folder, "report")
        for out, setting in zip(outs, ["", chaos], strict=True):
            if start(steps, out, setting, report).wait():
                return 1
        notes = [[json.loads(line) for line in out.read_text().splitlines()] for out in outs]
        events = [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []
    result = judge(notes[0], notes[1], events)
    print(json.dumps(result, indent=1))
    print(result["facts"])
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
