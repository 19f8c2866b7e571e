"""RunMetadata as TensorFlow writes it: whose time is it (names), what was sent, and what the GPU did."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stepd.traces.profile import parse_profile
from stepd.v1 import profile_pb2

CPU = "/job:worker/replica:0/task:0/device:CPU:0"
CPU_1 = "/job:worker/replica:0/task:1/device:CPU:0"
GPU = "/job:localhost/replica:0/task:0/device:GPU:0"
OPS = frozenset({"a", "scope/b", "loop/body", "fused"})


def node(name: str, start: int, micros: int, label: str = "", size: int | None = None) -> profile_pb2.NodeExecStats:
    stats = profile_pb2.NodeExecStats(node_name=name, all_start_micros=1000 + start, op_end_rel_micros=micros)
    stats.timeline_label = label
    if size is not None:
        stats.output.add(slot=0).tensor_description.allocation_description.requested_bytes = size
    return stats


def parse(*devices: tuple[str, list[profile_pb2.NodeExecStats]], names=(CPU, CPU_1, GPU)):
    metadata = profile_pb2.RunMetadata()
    for device, nodes in devices:
        metadata.step_stats.dev_stats.add(device=device, node_stats=nodes)
    return parse_profile(metadata.SerializeToString(), OPS, set(names), batch=[32, 1], seconds=0.1)


def times(step) -> dict[str, dict[str, float]]:
    return {seen.device: dict(zip(seen.ops, (seen.seconds * 1e6).round(3).tolist(), strict=True)) for seen in step.devices}


def test_names_exact_stripped_labelled_and_the_runtimes_own() -> None:
    step = parse(
        (
            CPU,
            [
                node("a", 0, 10, "a = MatMul()"),
                node("scope/b/_12", 10, 20, "scope/b/_12 = Identity()"),
                node("renamed", 30, 5, "[mklcpu 1MB 1MB] fused = _MklConv2D(x, y)"),
                node("_SOURCE", 40, 7, "_SOURCE = NoOp()"),
                node("a/_3", 50, 100, "a/_3 = _Recv(edge)"),
                node("GroupCrossDeviceControlEdges_0/NoOp", 150, 1, "GroupCrossDeviceControlEdges_0/NoOp = NoOp()"),
            ],
        )
    )
    assert times(step) == {CPU: {"a": 10.0, "scope/b": 20.0, "fused": 5.0}}
    assert step.overhead_seconds == pytest.approx(108e-6)
    assert step.batch == 32


def test_iterations_of_a_loop_are_summed() -> None:
    step = parse((CPU, [node("loop/body", 10 * k, 4) for k in range(5)]))
    assert times(step) == {CPU: {"loop/body": 20.0}}


def test_ops_that_overlap_share_their_device() -> None:
    step = parse((CPU, [node("a", 0, 100), node("scope/b", 0, 100)]))
    assert times(step) == {CPU: {"a": 50.0, "scope/b": 50.0}}


def test_who_waits_for_an_op_of_another_device_does_not_run_it() -> None:
    """TensorFlow waits for `a` on the other device by an Identity that is called after it."""
    step = parse((CPU, [node("a", 0, 900)]), (CPU_1, [node("a/_7", 905, 2, "a/_7 = Identity(a/_6)"), node("scope/b", 910, 50)]))
    assert times(step) == {CPU: {"a": 900.0}, CPU_1: {"scope/b": 50.0}}


def test_transfers_share_their_link_and_are_no_ops() -> None:
    label = f"[0.5MB] [900Mb/s] edge_16_scope/b from {CPU} to {CPU_1}"
    step = parse((CPU_1, [node("RecvTensor", 0, 100, label, size=500), node("RecvTensor", 50, 100, label, size=700)]))
    assert [(t.src, t.dst, t.op, t.bytes) for t in step.transfers] == [(CPU, CPU_1, "scope/b", n) for n in (500, 700)]
    assert [t.seconds for t in step.transfers] == pytest.approx([75e-6, 75e-6])
    assert step.devices == () or times(step)[CPU_1] == {}


@pytest.mark.parametrize("ahead", [0, 500_000, -500_000])
def test_a_tensor_is_on_its_way_from_when_it_was_made(ahead) -> None:
    """However far the clocks of the two hosts disagree: one of the tensors was sent at once."""

    def sent(op: str, start: int, micros: int) -> profile_pb2.NodeExecStats:
        return node("RecvTensor", 1_000_000 + start, micros, f"[1B] [1Mb/s] edge_1_{op} from {CPU} to {CPU_1}", size=8)

    made = [node("a", 1_000_000 + ahead, 20), node("scope/b", 1_000_020 + ahead, 20)]
    step = parse((CPU, made), (CPU_1, [sent("a", 20, 10), sent("scope/b", 100, 50), sent("not/known", 160, 10)]))
    assert [t.seconds for t in step.transfers] == pytest.approx([10e-6, 110e-6, 10e-6])


def test_gpu_kernel_times_replace_host_times() -> None:
    step = parse(
        (GPU, [node("a", 0, 10, "a = MatMul()", size=64), node("scope/b", 10, 10, "scope/b = Add()")]),
        ("/device:GPU:0/stream:all", [node("a:MatMul#id=3#", 5, 300), node("a:cast", 305, 20)]),
        ("/device:GPU:0/stream:2", [node("a:MatMul", 5, 300)]),
    )
    assert times(step) == {GPU: {"a": 328.0, "scope/b": 0.0}}  # launched in the shadow of a's kernels
    assert step.output_bytes["a"] == {0: 64}
    assert step.notes == ()


def copied(way: str, start: int, micros: int, size: int, dest: int) -> profile_pb2.NodeExecStats:
    """As TensorFlow's xplane_to_step_stats writes what CUPTI saw."""
    label = f"Memcpy{way} kind_src:device kind_dst:device size:{size} dest:{dest} async:1"
    return node(f"Memcpy{way}", start, micros, label)


def test_copies_of_gpus_are_transfers_between_the_devices_of_their_process() -> None:
    gpu_1, host = GPU.replace("GPU:0", "GPU:1"), GPU.replace("GPU:0", "CPU:0")
    step = parse(
        ("/device:GPU:0/memcpy", [copied("P2P", 0, 100, 4096, 1), copied("H2D", 0, 50, 512, 0), copied("D2D", 0, 9, 64, 0)]),
        ("/device:GPU:1/memcpy", [copied("D2H", 10, 20, 256, 1), copied("P2P", 200, 30, 128, 7), copied("H2D", 300, 1, 0, 1)]),
        ("/device:GPU:0/stream:14<MemcpyP2P>", [copied("P2P", 0, 100, 4096, 1)]),
        names=(host, GPU, gpu_1),
    )
    seen = {(t.src, t.dst): (t.op, t.bytes, round(t.seconds * 1e6, 3)) for t in step.transfers}
    assert seen == {(GPU, gpu_1): ("", 4096, 150.0), (host, GPU): ("", 512, 100.0), (gpu_1, host): ("", 256, 70.0)}
    assert len(step.transfers) == 3


def test_kernels_of_renamed_ops_and_of_two_gpus() -> None:
    gpu_1 = GPU.replace("GPU:0", "GPU:1")
    step = parse(
        (GPU, [node("a", 0, 10)]),
        (gpu_1, [node("scope/b/_7", 0, 10)]),
        ("/device:GPU:0/stream:all", [node("a:MatMul", 5, 300)]),
        ("/device:GPU:1/stream:all", [node("scope/b/_7:AddV2", 5, 40)]),
        names=(GPU, gpu_1),
    )
    assert times(step) == {GPU: {"a": 308.0}, gpu_1: {"scope/b": 48.0}}


def test_kernels_are_those_of_the_gpu_that_started_their_op():
    """CUDA may count GPUs otherwise than the session does, and one that is divided has one line."""
    gpu_1 = GPU.replace("GPU:0", "GPU:1")
    step = parse(
        (GPU, [node("a", 0, 10)]),
        (gpu_1, [node("scope/b", 0, 10)]),
        ("/device:GPU:0/stream:all", [node("scope/b:AddV2", 5, 40), node("a:MatMul", 45, 300)]),
        names=(GPU, gpu_1),
    )
    assert times(step) == {GPU: {"a": 308.0}, gpu_1: {"scope/b": 48.0}}
    assert not step.notes


def test_a_step_of_one_gpu_that_was_divided_into_two() -> None:
    """As TensorFlow 2.21 traced it on an H200: a layer on each half; kernels and copies are all on the line of the one chip."""
    data = (Path(__file__).parent / "testdata" / "divided_gpu.pb").read_bytes()
    gpu_1, host = GPU.replace("GPU:0", "GPU:1"), GPU.replace("GPU:0", "CPU:0")
    update = "GradientDescent/update_{}/ResourceApplyGradientDescent".format
    ops = ["left", "leftrelu", "right", "righttanh", "loss", update("w"), update("v")]
    step = parse_profile(data, ops, (host, GPU, gpu_1), batch=[64], seconds=0.01)
    on = {
        device.device: {op for op, seconds in zip(device.ops, device.seconds, strict=True) if seconds > 0}
        for device in step.devices
    }
    assert on[GPU] == {"left", "leftrelu", "loss", update("w")}
    assert on[gpu_1] == {"right", "righttanh", update("v")}
    assert {(t.src, t.dst): t.bytes for t in step.transfers} == {(host, GPU): 65536, (GPU, host): 4}
    assert not step.notes and step.output_bytes["left"] == {0: 131072}


def test_a_step_that_is_bound_by_launches() -> None:
    """As TensorFlow 2.21 traced it on an H200: a step of gpu_training.py, which took 5.2 ms while nobody watched (median of
    40). Its kernels take 3.1 ms.
    """
    data = gzip.decompress((Path(__file__).parent / "testdata" / "launched_gpu.pb.gz").read_bytes())
    lines = profile_pb2.RunMetadata.FromString(data).step_stats.dev_stats
    ops = {stats.node_name for line in lines if "stream" not in line.device for stats in line.node_stats}
    step = parse_profile(data, ops, (GPU.replace("GPU:0", "CPU:0"), GPU), batch=[64], seconds=0.034)
    [seconds] = [device.seconds.sum() for device in step.devices if device.device == GPU]
    assert 0.85 * 5.2e-3 < seconds < 1.15 * 5.2e-3


def test_a_gpu_of_which_no_kernel_is_seen_keeps_host_times_beside_one_that_is():
    gpu_1 = GPU.replace("GPU:0", "GPU:1")
    step = parse(
        (GPU, [node("a", 0, 10)]),
        (gpu_1, [node("scope/b", 0, 7)]),
        ("/device:GPU:0/stream:all", [node("a:MatMul", 5, 300)]),
        names=(GPU, gpu_1),
    )
    assert times(step) == {GPU: {"a": 308.0}, gpu_1: {"scope/b": 7.0}}
    assert [gpu_1 in note for note in step.notes] == [True]


def test_gpu_without_kernel_times_says_so() -> None:
    step = parse((GPU, [node("a", 0, 10)]))
    assert times(step) == {GPU: {"a": 10.0}}
    assert "CUPTI" in step.notes[0]


@pytest.mark.parametrize("damaged", [b"\xff", b""])
def test_what_is_no_profile(damaged) -> None:
    with pytest.raises(ValueError, match="profile"):
        parse_profile(damaged, OPS, {CPU}, batch=[], seconds=0.1)
