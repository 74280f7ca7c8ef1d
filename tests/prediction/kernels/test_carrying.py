from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.carrying import carried_power, carry_kernel, carry_unknown
from gobrrr.prediction.kernels.kernel_model import estimate_op, target_device
from gobrrr.timeline.ops import OpCall
from gobrrr.work import Work, work_of
from prediction.kernels.toy_device import aten, spec

H100, H200, A100 = (target_device(name) for name in ("H100-SXM", "H200-SXM", "A100"))
MI300X = target_device("MI300X")
STREAM = aten("relu", spec(50_000_000))
PRODUCT = aten("mm", spec(4096, 4096, dtype="bfloat16"), spec(4096, 4096, dtype="bfloat16"))


def work(call: OpCall) -> Work:
    found = work_of(call)
    assert found is not None
    return found


def test_to_the_same_device_a_kernel_keeps_its_time() -> None:
    for device in (H100, MI300X):
        for call in (STREAM, PRODUCT):
            carried = carry_kernel(3e-4, call, work(call), 1.0, device, device)
            assert carried is not None
            assert carried.seconds == pytest.approx(3e-4)


def test_a_stream_goes_by_bandwidth_and_a_product_by_its_rate() -> None:
    # The H200 is an H100 with 4.8 TB/s in place of 3.35 and the same arithmetic.
    stream = carry_kernel(150e-6, STREAM, work(STREAM), 1.0, H100, H200)
    product = carry_kernel(250e-6, PRODUCT, work(PRODUCT), 1.0, H100, H200)
    assert stream is not None
    assert product is not None
    assert stream.seconds == pytest.approx(150e-6 * 3352 / 4800, rel=0.02)
    # A fifth of its traffic is not hidden behind the arithmetic, and is faster there.
    assert product.seconds == pytest.approx(250e-6, rel=0.02)


def test_never_below_the_targets_roof() -> None:
    # 400 MB in 1 us is impossible on the source, and stays impossible on the target.
    carried = carry_kernel(1e-6, STREAM, work(STREAM), 1.0, H100, H200)
    assert carried is not None
    assert carried.target_roof is not None
    assert carried.seconds == carried.target_roof.time_s


def test_part_of_an_op_is_part_of_its_time() -> None:
    # Two kernels that share an op's work equally, each at half the time that is expected.
    expected = estimate_op(STREAM, work(STREAM), H100)
    assert expected is not None
    half = carry_kernel(expected.time_s / 2, STREAM, work(STREAM), 0.5, H100, A100)
    whole = carry_kernel(expected.time_s, STREAM, work(STREAM), 1.0, H100, A100)
    assert half is not None
    assert whole is not None
    assert half.seconds == pytest.approx(whole.seconds / 2)


def test_less_carries_over_between_vendors() -> None:
    assert carried_power(H100, H200) == 1.0
    assert 1.0 > carried_power(H100, A100) > carried_power(H100, MI300X) > 0.0


def test_kernels_without_work_go_by_what_their_name_says() -> None:
    # 101.47 us, of which 1.47 fixed: 100 us scale by 3.35 / 4.8.
    memory = carry_unknown(101.47e-6, "memory", H100, H200)
    assert memory == pytest.approx(1.47e-6 + 100e-6 * 3352 / 4800, rel=1e-3)
    compute = carry_unknown(101.47e-6, "compute", H100, A100, "bfloat16")
    assert compute == pytest.approx(A100.kernel_fixed_s + 100e-6 * 989.4 / 312, rel=1e-2)
    assert carry_unknown(1e-4, "", H100, A100) is None
