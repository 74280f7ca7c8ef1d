"""What is counted in a device's steps, by hand: times in microseconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from attribution.test_device_rules import DEVICE, attributed
from gobrrr.attribution.device.attributed import attributed_device
from trace_writing import WrittenTrace


def counted(trace: WrittenTrace, folder: Path) -> dict[str, float]:
    return attributed_device(*attributed(trace, folder), DEVICE).counters


def two_steps() -> WrittenTrace:
    """A batch copied, two products, a collective, and the loss read; the device waits for 40."""
    trace = WrittenTrace()
    for step, at in enumerate((0, 100)):
        trace.note(f"ProfilerStep#{step}", at, 100)
        trace.op("aten::copy_", at, 12)
        trace.call("cudaMemcpyAsync", at + 1, 10, at + 1)
        trace.kernel("Memcpy HtoD (Pageable -> Device)", at + 2, 8, at + 1, cat="gpu_memcpy",
                     bytes=4096)  # fmt: skip
        trace.launch("gemm", at + 14, at + 20, 20, at + 2)
        trace.launch("gemm", at + 17, at + 40, 10, at + 3)
        trace.launch("ncclDevKernel_AllReduce", at + 20, at + 50, 10, at + 4, stream=20)
        trace.op("aten::_local_scalar_dense", at + 24, 42)
        trace.call("cudaMemcpyAsync", at + 25, 2, at + 5)
        trace.kernel("Memcpy DtoH (Device -> Pinned)", at + 60, 2, at + 5, cat="gpu_memcpy",
                     bytes=4)  # fmt: skip
        trace.call("cudaStreamSynchronize", at + 30, 35, at + 6)
    return trace


def test_a_step_of_each_kind(tmp_path: Path) -> None:
    found = counted(two_steps(), tmp_path)
    assert {name: found[name] for name in found if not name.endswith("_s")} == {
        "kernels": 2, "copies": 2, "collectives": 1, "pageable_copies": 1, "synchronisations": 2,
        "reads_of_one_value": 1, "staged_bytes": 4096,
    }  # fmt: skip
    # For a copy from memory that is not pinned as well.
    assert found["host_waits_s"] == pytest.approx((10 + 35) * 1e-6)
    assert found["staged_copies_s"] == pytest.approx(8e-6)


def test_the_device_idles_after_a_wait_for_no_longer_than_it_took(tmp_path: Path) -> None:
    found = counted(two_steps(), tmp_path)
    # Calls from 1 on for 10, from 30 for 35, from 101 and from 130. After the first [1, 2) and
    # [10, 20), of which 10 are due to it; after the second [62, 101), of which 35; after the third
    # as after the first; to the last, which stands for that before the steps, [0, 1).
    assert found["idle_after_waits_s"] == pytest.approx((10 + 35 + 10 + 1) * 1e-6 / 2)
    # The copies' calls take 10, and after each the device idles for longer.
    assert found["idle_after_staging_s"] == pytest.approx(10e-6)


def test_what_stands_beside_the_steps_is_not_counted(tmp_path: Path) -> None:
    trace = two_steps()
    trace.note("ProfilerStep#2", 200, 50)
    trace.call("cudaDeviceSynchronize", 240, 500, 900)
    trace.launch("gemm", 205, 210, 5, 901)
    found = counted(trace, tmp_path)
    # A third step of one product, whose wait is beside its kernels.
    assert found["kernels"] == pytest.approx(5 / 3)
    assert found["copies"] == pytest.approx(4 / 3)


def test_kernels_of_graphs_and_of_compiled_regions(tmp_path: Path) -> None:
    trace = WrittenTrace()
    for step, at in enumerate((0, 100)):
        trace.note(f"ProfilerStep#{step}", at, 100)
        trace.op("Torch-Compiled Region: 0/0", at + 1, 20)
        trace.call("cudaGraphLaunch", at + 2, 5, at + 1)
        for place in range(3):
            trace.kernel("triton_poi_fused_add_0", at + 10 + 10 * place, 8, at + 1)
        trace.launch("gemm", at + 22, at + 50, 8, at + 2)
    found = counted(trace, tmp_path)
    assert (found["kernels"], found["graph_kernels"]) == (4, 3)
    assert found["compiled_regions"] == 1


def test_what_a_convolution_spends_on_layouts(tmp_path: Path) -> None:
    trace = WrittenTrace()
    trace.note("ProfilerStep#1", 0, 100)
    trace.op("aten::cudnn_convolution", 1, 12)
    trace.launch("void cudnn::ops::nchwToNhwcKernel<float>(int)", 2, 10, 6, 1)
    trace.launch("implicit_gemm", 5, 16, 20, 2)
    trace.launch("void cudnn::ops::nhwcToNchwKernel<float>(int)", 8, 36, 7, 3)
    found = counted(trace, tmp_path)
    assert found["layout_kernels_s"] == pytest.approx(13e-6)
    # Without a convolution around it is what the program asked for.
    other = WrittenTrace()
    other.note("ProfilerStep#1", 0, 100)
    other.op("aten::contiguous", 1, 12)
    other.launch("void cudnn::ops::nchwToNhwcKernel<float>(int)", 2, 10, 6, 1)
    assert "layout_kernels_s" not in counted(other, tmp_path)
