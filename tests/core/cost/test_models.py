"""Cost models against machines whose costs are known: what they learn, estimate and forget."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepd.core.cost.communication import OTHER_TASK, LinkCost, fit_line, prior
from stepd.core.cost.computation import ComputationModel, estimate_seconds
from stepd.core.cost.models import CostModels
from stepd.core.cost.observation import DeviceObservation, InParts, StepObservation, Transfer, of_whole_ops, share_overlaps
from stepd.core.cost.parts import op_costs
from stepd.core.cost.pooling import pool
from stepd.core.cost.sizes import SizeModel
from stepd.core.cost.window import WIDTH, WindowTable
from stepd.daemon import codec

CPU_0, CPU_1 = "/job:w/task:0/device:CPU:0", "/job:w/task:1/device:CPU:0"
GPU_0, GPU_1 = "/job:w/task:0/device:GPU:0", "/job:w/task:0/device:GPU:1"


def seen(device: str, batch: int = 32, **seconds: float) -> StepObservation:
    observed = DeviceObservation(device, tuple(seconds), np.array(list(seconds.values())))
    return StepObservation((observed,), batch=batch)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(st.floats(0, 10), min_size=3, max_size=3), min_size=1, max_size=3 * WIDTH))
def test_window_is_the_median_of_the_last_samples(samples) -> None:
    table = WindowTable()
    for step, row in enumerate(samples):
        table.observe(["a", "b", "c"], np.array(row), step)
    last = np.array(samples[-WIDTH:], dtype=np.float32)
    assert table.medians() == pytest.approx(np.median(last, axis=0), rel=1e-6)
    assert sorted(table.steps[0][table.steps[0] >= 0]) == list(range(len(samples)))[-WIDTH:]
    assert list(table.counts) == [len(samples)] * 3


def test_a_step_that_hung_does_not_move_an_op_time() -> None:
    model = CostModels()
    for seconds in (0.010, 0.011, 9.0, 0.010, 0.009):
        model.observe(seen(CPU_0, op=seconds))
    assert model.computation.at_batch(CPU_0, 32)["op"] == pytest.approx(0.010)


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=30),
)
def test_shared_times_add_up_to_the_time_that_the_device_was_busy(intervals) -> None:
    start = np.array([float(a) for a, _ in intervals])
    end = start + np.array([float(length) for _, length in intervals])
    shared = share_overlaps(start, end)
    covered = sum(1 for tick in range(75) if np.any((start <= tick) & (end >= tick + 1)))
    assert shared.sum() == pytest.approx(covered)
    assert np.all(shared <= end - start + 1e-9)
    assert np.all(shared >= 0)


def test_two_ops_at_half_speed_each_get_their_half() -> None:
    assert share_overlaps(np.array([0.0, 0.0, 4.0]), np.array([4.0, 2.0, 5.0])).tolist() == [3.0, 1.0, 1.0]


@settings(deadline=None, max_examples=50)
@given(st.floats(1e-6, 1e-2), st.floats(1e7, 1e11), st.integers(0, 1000))
def test_transfer_line_is_found_through_noise_and_waits(latency, bandwidth, seed) -> None:
    """Pairs stay together: with sizes and times sorted apart the slope would be off by the waits of small transfers."""
    rng = np.random.default_rng(seed)
    sizes = np.tile([0, 4, 64, 4096, 65536, 1 << 20, 4 << 20, 16 << 20], 25).astype(float)
    samples = np.column_stack([sizes, (latency + sizes / bandwidth) * rng.uniform(0.97, 1.03, len(sizes))])
    samples[rng.choice(len(samples), 10, replace=False), 1] += 5 * samples[:, 1].max()
    line = fit_line(samples, OTHER_TASK)
    for size in (1 << 16, 4 << 20, 16 << 20):
        assert line.seconds(size) == pytest.approx(latency + size / bandwidth, rel=0.35)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 10)), min_size=1, max_size=60))
def test_a_line_never_promises_the_impossible(samples) -> None:
    line = fit_line(np.array(samples), OTHER_TASK)
    assert line.latency_seconds >= 0
    assert 0 < line.bytes_per_second < float("inf")


def test_sizes_all_alike_leave_the_slope_to_the_prior() -> None:
    line = fit_line(np.array([(1000.0, 0.5)] * 10), LinkCost(0, 1e9))
    assert (line.bytes_per_second, line.samples) == (1e9, 10)
    assert line.latency_seconds == pytest.approx(0.5, rel=1e-3)


def test_same_op_on_the_same_type_of_device_scaled_by_what_both_ran() -> None:
    """CPU 1 is twice as slow on what both ran, so also on what it never ran."""
    model = ComputationModel()
    model.observe(seen(CPU_0, a=1.0, b=3.0, c=5.0).devices[0], 32, 0)
    model.observe(seen(CPU_1, a=2.0, b=6.0).devices[0], 32, 0)
    seconds = estimate_seconds(model, ["a", "b", "c", "never"], ["T"] * 4, [(CPU_0, "CPU"), (CPU_1, "CPU")], 32)
    assert seconds.tolist() == [[1, 2], [3, 6], [5, 10], [0, 0]]


def test_an_op_that_moved_away_keeps_up_with_the_pace_of_the_device_it_left() -> None:
    """Device 0 works a quarter slower since device 1 works too: what moved to device 1 must not seem faster on device 0."""
    rng = np.random.default_rng(3)
    true = {f"op{k}": seconds for k, seconds in enumerate(rng.uniform(1e-3, 9e-3, 40))}
    stays, moves = list(true)[:20], list(true)[20:]
    models = CostModels()

    def step(device: str, ops: list[str], pace: float) -> DeviceObservation:
        return DeviceObservation(device, tuple(ops), np.array([true[op] * pace * rng.uniform(0.95, 1.05) for op in ops]))

    for _ in range(8):
        models.observe(StepObservation((step(CPU_0, [*stays, *moves], 1.0),), batch=32))
    for _ in range(5):
        models.observe(StepObservation((step(CPU_0, stays, 1.25), step(CPU_1, moves, 1.25)), batch=32))
    seconds = estimate_seconds(models.computation, list(true), ["T"] * 40, [(CPU_0, "CPU"), (CPU_1, "CPU")], 32)
    assert seconds / np.array(list(true.values()))[:, None] == pytest.approx(1.25, rel=0.08)
    assert abs(np.log(seconds[:, 0].sum() / seconds[:, 1].sum())) < 0.04


def test_like_devices_share_what_they_measured_as_far_as_they_are_alike() -> None:
    """Noise is averaged over like devices; a difference that is real stays."""
    rng = np.random.default_rng(5)
    true = rng.uniform(1.0, 9.0, 200)
    alike = true[:, None] * rng.normal(1.0, 0.1, (200, 2))
    pooled = pool(alike, np.ones((200, 2)), 0.1, ["GPU", "GPU"])
    assert np.abs(pooled / true[:, None] - 1.0).mean() < 0.8 * np.abs(alike / true[:, None] - 1.0).mean()
    own = np.where(np.arange(200) % 2, 1.0, 3.0)  # device 1 is three times slower on every other op
    unlike = np.column_stack([true, true * own]) * rng.normal(1.0, 0.02, (200, 2))
    assert pool(unlike, np.full((200, 2), 16.0), 0.02, ["GPU", "GPU"])[:, 1] == pytest.approx(true * own, rel=0.1)
    assert pool(alike, np.ones((200, 2)), 0.1, ["GPU", "CPU"]) == pytest.approx(alike)


def test_other_type_of_device_by_the_ratio_of_the_op_type() -> None:
    model = ComputationModel()
    model.observe(seen(CPU_0, conv1=10.0, conv2=20.0, add1=1.0, add2=3.0, other=4.0).devices[0], 32, 0)
    model.observe(seen(GPU_0, conv1=1.0, add1=0.5).devices[0], 32, 0)
    devices = [(CPU_0, "CPU"), (GPU_0, "GPU"), (GPU_1, "GPU")]
    ops, types = ["conv1", "conv2", "add1", "add2", "other"], ["Conv", "Conv", "Add", "Add", "Other"]
    seconds = estimate_seconds(model, ops, types, devices, 32)
    assert seconds[:, 1] == pytest.approx([1.0, 2.0, 0.5, 1.5, 4.0 * 1.5 / 11])
    assert seconds[:2, 2] == pytest.approx([1.0, 2.0])


@settings(deadline=None, max_examples=50)
@given(st.floats(1e-5, 1e-3), st.floats(1e-6, 1e-3), st.sampled_from([8, 64, 200, 512]))
def test_batch_sizes_not_run_lie_on_the_line(fixed, each, batch) -> None:
    model = ComputationModel()
    for size in (16, 32, 128):
        model.observe(seen(CPU_0, size, op=fixed + each * size).devices[0], size, 0)
    assert model.at_batch(CPU_0, batch)["op"] == pytest.approx(fixed + each * batch, rel=1e-3)


def test_one_batch_size_scales_what_is_beyond_the_least_op() -> None:
    model = ComputationModel()
    model.observe(seen(CPU_0, 32, tiny=1e-5, op=1e-5 + 32e-4).devices[0], 32, 0)
    assert model.at_batch(CPU_0, 64) == pytest.approx({"tiny": 1e-5, "op": 1e-5 + 64e-4})


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(0, 10**4), st.sampled_from([8, 64, 500]))
def test_sizes_of_other_batches(fixed, each, batch) -> None:
    sizes = SizeModel()
    for size in (16, 32):
        sizes.observe({"op:0": fixed + each * size}, size)
    assert sizes.at_batch(batch)["op:0"] == fixed + each * batch


def test_stability_is_about_what_takes_time() -> None:
    """FastT, section 4: an op of no weight may flutter; the op that makes the step may not."""
    models = CostModels()
    models.observe(seen(CPU_0, big=1.0, tiny=1e-6))
    mark = models.mark()
    for _ in range(WIDTH):
        models.observe(seen(CPU_0, big=1.01, tiny=9e-6))
    assert mark.change_to(models).stable(0.05)
    for _ in range(WIDTH):
        models.observe(seen(CPU_0, big=1.5, tiny=1e-6))
    change = mark.change_to(models)
    assert not change.stable(0.05)
    assert change.worth_planning(0.1)


def test_a_device_or_a_link_seen_for_the_first_time_is_worth_a_plan() -> None:
    models = CostModels()
    models.observe(seen(CPU_0, op=1.0))
    mark = models.mark()
    assert not mark.change_to(models).worth_planning(0.1)
    models.observe(StepObservation((), (Transfer(CPU_0, CPU_1, "op", 100, 0.1),), batch=32))
    assert mark.change_to(models).worth_planning(0.1)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(min_size=1, max_size=5), st.floats(0, 1), min_size=1, max_size=5), st.integers(1, 20))
def test_models_survive_the_store(times, steps) -> None:
    models = CostModels()
    for _ in range(steps):
        observed = DeviceObservation(CPU_0, tuple(times), np.array(list(times.values())))
        transfers = (Transfer(CPU_0, CPU_1, "x", 1 << 20, 0.01),)
        models.observe(StepObservation((observed,), transfers, {op: {0: 7} for op in times}, batch=32))
    again = CostModels.from_state(codec.loads(codec.dumps(models.to_state(), compress=True)))
    assert again.computation.snapshot() == models.computation.snapshot()
    assert again.communication.fit(CPU_0, CPU_1, OTHER_TASK) == models.communication.fit(CPU_0, CPU_1, OTHER_TASK)
    assert again.outputs.at_batch(32) == models.outputs.at_batch(32)
    assert (again.steps, again.batch) == (models.steps, models.batch)


def test_priors_tell_processes_apart() -> None:
    assert prior(GPU_0, GPU_1).bytes_per_second > prior(CPU_0, CPU_1).bytes_per_second


def test_what_parts_take_beyond_what_is_usual_is_known_by_op_and_axis() -> None:
    """In a step in parts everything takes a fifth longer, and the parts of `b` together twice as long as that."""
    models = CostModels()
    models.observe(seen(CPU_0, a=1.0, b=1.0, c=2.0))
    parts = seen(CPU_0, a=0.6, b=1.2, c=1.2, d=0.3, e=1.0)
    split = {op: InParts("batch", {CPU_0: 0.5}) for op in "abcd"}
    models.observe(of_whole_ops(parts, split))
    known = op_costs(models.computation, list("abcde"), ["T"] * 5, [(CPU_0, "CPU"), (CPU_1, "CPU")], 32)
    assert known.dearer == pytest.approx({("a", "batch"): 1.0, ("b", "batch"): 2.0, ("c", "batch"): 1.0})
    usual = 1.2**0.5
    for seconds in known.seconds.T:
        assert seconds == pytest.approx([usual, usual, 2 * usual, 0.6 / usual, 1.0])
    assert models.computation.ops() == set("abcde")
