"""Recorded traces through formulas and data sheets: figures known from elsewhere."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np
import pytest

from gobrrr.attribution.device.attribute import DeviceAttribution, attribute_device
from gobrrr.devices.datasheet import ceilings_from_datasheet
from gobrrr.recordings.traces import read_trace
from gobrrr.timeline.data import KernelKind, Timeline
from gobrrr.work import work_of
from trace_writing import SHARED

pytestmark = pytest.mark.skipif(
    not SHARED.exists(), reason=f"the shared traces are not beside the repository ({SHARED.name})"
)


@cache
def diagnosed(name: str) -> tuple[Timeline, DeviceAttribution]:
    timeline = read_trace(SHARED / f"{name}.json.gz")
    ceilings = ceilings_from_datasheet(timeline.device.name)
    return timeline, attribute_device(timeline, ceilings, work_of)


def calls_of(name: str, *shapes: tuple[int, ...]) -> tuple[int, float, float, float]:
    """Number of kernels, their time (ns), FLOPs and bytes of one operator of the Qwen trace."""
    timeline, found = diagnosed("h100_qwen1.5_0.5b_inference")
    kernels, host = timeline.kernels, timeline.host
    count, time, flops, moved = 0, 0.0, 0.0, 0.0
    for row in np.flatnonzero((kernels.kind == KernelKind.KERNEL) & (kernels.op >= 0)).tolist():
        call = timeline.calls[host.call[found.work.op[row]]]
        if call.name == name and tuple(t.shape for t in call.tensors[: len(shapes)]) == shapes:
            work = found.work.works[row]
            assert work is not None
            assert work.flops is not None
            assert work.bytes_moved is not None
            count += 1
            time += float(kernels.end_ns[row] - kernels.start_ns[row])
            flops += work.flops
            moved += work.bytes_moved
    return count, time, flops, moved


def test_qwen_matrix_products() -> None:
    count, time, flops, _ = calls_of("aten::mm", (8944, 1024), (1024, 2816))
    assert count == 48
    assert flops / count == 2 * 8944 * 1024 * 2816  # 51.58 GFLOP
    assert time / 1e6 == pytest.approx(4.02, abs=0.005)


def test_qwen_flash_attention() -> None:
    timeline, found = diagnosed("h100_qwen1.5_0.5b_inference")
    flops = [
        work.flops
        for row, work in enumerate(found.work.works)
        if work is not None and "flash_fwd" in timeline.names[timeline.kernels.name[row]]
    ]
    # 24 in the step, and those of the step before that were launched before the recording
    assert len(flops) > 24
    # Causal: 4 * 16 * 16 * 559 * 559 * 64 / 2 = 10.24e9 multiply-adds, half of the square
    assert min(f or 0 for f in flops) == pytest.approx(10.24e9, rel=0.05)


def test_qwen_pow_streams_at_the_measured_rate() -> None:
    count, time, _, moved = calls_of("aten::pow", (16, 559, 1024))
    assert count == 49  # two norms in each of 24 layers, and the last
    assert moved / time * 1e9 == pytest.approx(2.76e12, rel=0.02)


def test_qwen_idle_is_launch_where_the_call_has_returned() -> None:
    timeline, found = diagnosed("h100_qwen1.5_0.5b_inference")
    idle, host = found.idle, timeline.host
    length = idle.end_ns - idle.start_ns
    launch = np.where(idle.kernel >= 0, timeline.kernels.launch[idle.kernel], -1)
    after = (launch >= 0) & (idle.start_ns >= host.end_ns[launch])
    # 45 % of the idle time lies after the launch call returned
    assert float(length[after].sum() / length.sum()) == pytest.approx(0.45, abs=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "h100_qwen1.5_0.5b_inference",
        "h100_bert_small_inference",
        "h100_vit_nsfw_inference",
        "mi300x_qwen1.5_0.5b_inference",
        "mi300x_bert_small_inference",
        "mi300x_vit_nsfw_inference",
        "mi300x_resnet_activation_checkpoint_training",
        "mi300x_torch_compile_triton",
    ],
)
def test_kernel_time_is_modelled_where_shapes_were_recorded(name: str) -> None:
    timeline, found = diagnosed(name)
    is_kernel = timeline.kernels.kind == KernelKind.KERNEL
    time = np.where(is_kernel, found.attribution.kernels.owned_ns, 0.0)
    modelled = time[~np.isnan(found.work.roof_ns)].sum() / time.sum()
    assert modelled >= 0.98


def test_the_data_loader_pair() -> None:
    """One program before and after num_workers=4; the saving is known from the first alone."""
    before, found = diagnosed("v100_resnet50_dataloader_workers0")
    after, then = diagnosed("v100_resnet50_dataloader_workers4")
    step_before = np.median(before.steps[:, 1] - before.steps[:, 0])
    step_after = np.median(after.steps[:, 1] - after.steps[:, 0])

    # The device waits exactly as long as the leaf says; a typical step is the median window.
    def loading(of: DeviceAttribution) -> float:
        return float(np.median([w["overhead.data_loading"] for w in of.attribution.windows]))

    expected = loading(found)
    assert expected > 0.2 * step_before
    assert loading(then) < 0.01 * step_after
    assert expected == pytest.approx(step_before - step_after, rel=0.20)


def test_idle_before_the_first_kernel_is_seen() -> None:
    timeline, found = diagnosed("h100_bert_small_inference")
    # 92 % of the device's own window is idle; the step also has the host's time before it.
    leaves = found.attribution.leaves_ns
    idle = (
        sum(v for k, v in leaves.items() if k.startswith("overhead."))
        - leaves["overhead.kernel_fixed_cost"]
    )
    assert idle / found.attribution.step_ns > 0.92
    assert timeline.steps[0, 0] < timeline.kernels.start_ns[0]


def test_busy_time_outside_all_step_marks_is_inside_a_window() -> None:
    timeline, found = diagnosed("mi300x_resnet_activation_checkpoint_training")
    per_step: dict[str, float] = defaultdict(float)
    for leaves in found.attribution.windows:
        for name, value in leaves.items():
            per_step[name.split(".")[0]] += value
    idle = float((found.idle.end_ns - found.idle.start_ns).sum())
    total = float(timeline.steps[-1, 1] - timeline.steps[0, 0])
    assert found.device_time.busy_ns == pytest.approx(total - idle, abs=1)
    assert sum(per_step.values()) == pytest.approx(total, abs=1)
