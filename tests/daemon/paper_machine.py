"""A training process that only exists on paper: a hook that speaks Runtime.Attach and a machine to run its steps.

The machine's truth is a Problem: its step times and traces come from the simulator, so that what the daemon learns can be compared
with what is true.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import numpy as np

from stepd.core.portfolio.start_order import natural_priority
from stepd.core.problem import Device, Link, Problem
from stepd.core.simulator import simulate_placement
from stepd.v1 import profile_pb2, runtime_pb2, runtime_pb2_grpc

DEVICES = tuple(f"/job:worker/replica:0/task:{k}/device:CPU:0" for k in range(2))
WAIT_SECONDS = 120.0

# order=none: the hook here stands for a runtime that follows no order but its own (Towers.step).
# planner_yields=false: on a busy machine a planner that yields may get nothing for minutes.
PLANNING = ("planner_yields=false", "order=none", "plan_seconds=1", "profile_steps=2", "cool_down_seconds=0.5", "algorithm=heft")


def wait_for(what: str, check: Callable[[], object], seconds: float = WAIT_SECONDS) -> object:
    """Poll until `check` is true; for conditions of another process, which cannot notify."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = check()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {seconds} s")


@dataclass
class Towers:
    """A training step of two towers of `depth` ops, joined by a loss; on the program's own placement
    everything runs on device 0.
    """

    depth: int = 6
    op_seconds: float = 0.010
    edge_bytes: int = 200_000
    latency: float = 5e-4
    bandwidth: float = 1e9
    names: list[str] = field(init=False)
    problem: Problem = field(init=False)

    def __post_init__(self) -> None:
        towers = [[f"{tower}/op{k}" for k in range(self.depth)] for tower in ("left", "right")]
        self.names = ["x", *towers[0], *towers[1], "loss"]
        index = {name: i for i, name in enumerate(self.names)}
        edges = [(index[a], index[b]) for tower in towers for a, b in zip(["x", *tower], [*tower, "loss"], strict=True)]
        n = len(self.names)
        seconds = np.full((n, 2), self.op_seconds)
        seconds[[index["x"], index["loss"]]] = 1e-4
        self.problem = Problem(
            name="towers",
            devices=tuple(Device(name, "CPU", 1 << 40) for name in DEVICES),
            links=(Link(0, 1, self.bandwidth, self.latency), Link(1, 0, self.bandwidth, self.latency)),
            op_names=tuple(self.names),
            op_types=("Placeholder", *["MatMul"] * (2 * self.depth), "AddN"),
            seconds=seconds,
            resident_bytes=np.zeros(n, dtype=np.int64),
            temp_bytes=np.zeros(n, dtype=np.int64),
            colocation=np.full(n, -1, dtype=np.int32),
            edge_src=np.array([a for a, _ in edges], dtype=np.int32),
            edge_dst=np.array([b for _, b in edges], dtype=np.int32),
            edge_output=np.zeros(len(edges), dtype=np.int32),
            edge_bytes=np.full(len(edges), self.edge_bytes, dtype=np.int64),
        )

    def graph_def(self) -> bytes:
        graph = profile_pb2.GraphDef()
        for i, name in enumerate(self.names):
            sources = self.problem.edge_src[self.problem.edge_dst == i]
            graph.node.add(name=name, op=self.problem.op_types[i], input=[self.names[s] for s in sources])
        return graph.SerializeToString()

    def step(self, placement: dict[str, str]) -> tuple[float, bytes]:
        """Step time and RunMetadata bytes of one step; ops that `placement` leaves out run on device 0."""
        where = np.array([DEVICES.index(placement.get(name, DEVICES[0])) for name in self.names], dtype=np.int32)
        simulation = simulate_placement(self.problem, where, natural_priority(self.problem))
        metadata = profile_pb2.RunMetadata()
        epoch = 1_700_000_000_000_000_000
        for k, device in enumerate(DEVICES):
            line = metadata.step_stats.dev_stats.add(device=device)
            for i in np.flatnonzero(where == k):
                stats = line.node_stats.add(node_name=self.names[i], all_start_nanos=epoch + int(simulation.start[i] * 1e9))
                stats.op_end_rel_nanos = int((simulation.finish[i] - simulation.start[i]) * 1e9)
                stats.timeline_label = f"{self.names[i]} = {self.problem.op_types[i]}()"
                stats.output.add(slot=0).tensor_description.allocation_description.requested_bytes = self.edge_bytes
        moved = simulation.transfers
        for op, src, dst, start, end, size in zip(
            moved.op, moved.src, moved.dst, moved.start, moved.end, moved.nbytes, strict=True
        ):
            line = metadata.step_stats.dev_stats.add(device=DEVICES[dst])
            stats = line.node_stats.add(node_name="RecvTensor", all_start_nanos=epoch + int(start * 1e9))
            stats.op_end_rel_nanos = int((end - start) * 1e9)
            stats.timeline_label = f"[{size}B] edge_{op}_{self.names[op]} from {DEVICES[src]} to {DEVICES[dst]}"
            stats.output.add(slot=0).tensor_description.allocation_description.requested_bytes = int(size)
        return simulation.step_seconds, metadata.SerializeToString()


class FakeHook:
    """One training process with one session; `towers` says what its steps cost."""

    def __init__(self, socket: Path, towers: Towers, *, job_id: str | None = None, name: str = "towers.py") -> None:
        self.job_id = job_id or uuid.uuid4().hex
        self.towers = towers
        self.session_id = "s1"
        self.placement: dict[str, str] = {}
        self.strategy_id = ""
        self.activations: list[runtime_pb2.Activate] = []
        self.received: list[runtime_pb2.DaemonMessage] = []
        self.told: list[dict[str, object]] = []  # the last switch and the verdicts: said again after every Welcome
        self.judge: Callable[[float, float], int] = lambda before, after: (
            runtime_pb2.Verdict.KEPT if after < before else runtime_pb2.Verdict.ROLLED_BACK
        )
        self.welcome = threading.Event()
        self.ended = threading.Event()
        self._name = name
        self._outbox: queue.Queue[runtime_pb2.HookMessage | None] = queue.Queue()
        self._channel = grpc.insecure_channel(f"unix:{socket}", (("grpc.max_receive_message_length", -1),))
        self._stream = runtime_pb2_grpc.RuntimeStub(self._channel).Attach(iter(self._outbox.get, None))
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self.send(
            hello=runtime_pb2.Hello(
                job_id=self.job_id,
                job_name=name,
                pid=os.getpid(),
                hostname="paper",
                protocol=1,
                compatibility=runtime_pb2.CompatibilityVerdict(active=True),
            )
        )
        self._thread.start()

    def send(self, **message: object) -> None:
        self._outbox.put(runtime_pb2.HookMessage(**message))  # type: ignore[arg-type]

    def open(self) -> None:
        """Describe the session and its graph, as after every Welcome."""
        assert self.welcome.wait(WAIT_SECONDS)
        devices = [runtime_pb2.Device(name=name, type="CPU", memory_bytes=1 << 40, usable=True) for name in DEVICES]
        self.send(session_opened=runtime_pb2.SessionOpened(session_id=self.session_id, device=devices, user_devices="free"))
        for message in self.told:
            self.send(**message)
        self._send_graph()

    def _send_graph(self) -> None:
        self.send(
            graph=runtime_pb2.GraphReport(
                session_id=self.session_id,
                fingerprint="f" * 64,
                graph_def=self.towers.graph_def(),
                kind=[runtime_pb2.StepKind(id="train", fetch=["loss:0"], feed=["x:0"])],
            )
        )

    def run_steps(self, count: int = 20) -> None:
        """Report unprofiled steps on what is in force."""
        seconds, _ = self.towers.step(self.placement)
        self.send(
            step_times=runtime_pb2.StepTimes(
                session_id=self.session_id,
                kind="train",
                strategy_id=self.strategy_id,
                seconds=[seconds] * count,
            )
        )

    def profile(self, count: int = 1) -> None:
        """Send profiled steps on what is in force."""
        seconds, metadata = self.towers.step(self.placement)
        for _ in range(count):
            self.send(
                profile=runtime_pb2.StepProfile(
                    session_id=self.session_id,
                    kind="train",
                    strategy_id=self.strategy_id,
                    run_metadata=metadata,
                    seconds=seconds,
                    batch=[32],
                )
            )

    def _receive(self) -> None:
        try:
            for message in self._stream:
                self.received.append(message)
                which = message.WhichOneof("message")
                if which == "welcome":
                    self.welcome.set()
                elif which == "profile":
                    self.profile(message.profile.steps)
                elif which == "activate":
                    self._activate(message.activate)
                elif which == "rollback":
                    self._go_back()
                elif which == "graph_wanted":
                    self._send_graph()
        except grpc.RpcError:
            pass
        finally:
            self.ended.set()

    def _activate(self, activate: runtime_pb2.Activate) -> None:
        self.activations.append(activate)
        strategy = activate.strategy
        before, _ = self.towers.step(self.placement)
        old = (self.placement, self.strategy_id)
        self.send(heartbeat=runtime_pb2.Heartbeat(state="switching"))
        self.placement = {op: strategy.devices[k] for op, k in zip(strategy.op, strategy.device, strict=True)}
        self.strategy_id = strategy.id
        self._report_switch()
        self.run_steps()
        after, _ = self.towers.step(self.placement)
        outcome = runtime_pb2.Verdict.KEPT if activate.pin else self.judge(before, after)
        if outcome != runtime_pb2.Verdict.KEPT:
            self.placement, self.strategy_id = old
            self._report_switch(rollback=True)
        verdict = runtime_pb2.Verdict(
            session_id=self.session_id,
            strategy_id=strategy.id,
            kind="train",
            outcome=outcome,
            reason="measured on paper",
            before_seconds=before,
            after_seconds=after,
            p_value=1e-6,
            before_steps=20,
            after_steps=20,
        )
        self.told.append({"verdict": verdict})
        self.send(verdict=verdict)
        self.run_steps()

    def _go_back(self) -> None:
        self.placement, self.strategy_id = {}, ""
        self._report_switch(rollback=True)
        self.run_steps()

    def _report_switch(self, rollback: bool = False) -> None:
        switch = runtime_pb2.SwitchReport(
            session_id=self.session_id,
            strategy_id=self.strategy_id,
            ok=True,
            honoured=len(self.placement),
            rollback=rollback,
        )
        self.told = [{"switch": switch}, *(message for message in self.told if "verdict" in message)]
        self.send(switch=switch)

    def close(self) -> None:
        self._outbox.put(None)
        self._stream.cancel()
        self._thread.join(WAIT_SECONDS)
        self._channel.close()
