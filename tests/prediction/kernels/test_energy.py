"""Energy of ops and steps from the power model's constants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.prediction.kernels.coefficients import coefficients_of
from gobrrr.prediction.kernels.energy import energy_of_op, energy_of_step
from gobrrr.prediction.kernels.power import product_clock_share, static_w
from gobrrr.prediction.kernels.target import target_device
from gobrrr.work.estimate import Work


def _work(matrix: float = 0.0, vector: float = 0.0, dtype: str = "bfloat16") -> Work:
    return Work(
        matrix_flops=matrix, vector_flops=vector, bytes_read=0, bytes_written=0,
        unique_bytes=0, op_class="other", compute_dtype=dtype,
    )  # fmt: skip


def test_flops_and_bytes_cost_what_the_constants_say() -> None:
    found = energy_of_op(_work(matrix=1e12), 1e9, target_device("H100-SXM"))
    assert found is not None
    # 0.6 pJ x 10^12 FLOPs; 8 bits x 3.9 pJ x 10^9 bytes
    assert found.arithmetic_j == pytest.approx(0.6)
    assert found.memory_j == pytest.approx(31.2e-3)
    wide = energy_of_op(_work(matrix=1e12, dtype="tf32"), 0.0, target_device("H100-SXM"))
    assert wide is not None and wide.arithmetic_j == pytest.approx(1.2)


def test_a_step_draws_between_static_and_board_power() -> None:
    device = target_device("A100-SXM-80GB")
    idle = energy_of_step([], 1.0, device)
    assert idle is not None
    # 15 W and a fifth of 400 W
    assert idle.joules == idle.static_j == pytest.approx(95.0)
    # 10^15 FLOPs in 1 s are beyond its peak: the board's power is the limit.
    busy = energy_of_step([(_work(matrix=1e15), 1e12, 1.0)], 1.0, device)
    assert busy is not None
    assert busy.mean_w == pytest.approx(busy.board_w)
    light = energy_of_step([(_work(matrix=1e13), 0.0, 0.5)], 1.0, device)
    assert light is not None
    assert idle.joules < light.joules < busy.joules


def test_more_work_in_the_same_time_never_takes_less_energy() -> None:
    device = target_device("L40S")
    joules = []
    for power in range(8, 16):
        found = energy_of_step([(_work(matrix=10.0**power), 10.0**power / 4, 1e-2)], 1e-2, device)
        assert found is not None
        joules.append(found.joules)
    assert joules == sorted(joules)


def test_unknown_stays_unknown() -> None:
    # No constant for its tensor cores, no board power, no CUDA.
    assert energy_of_op(_work(matrix=1.0, dtype="float16"), 0.0, target_device("T4")) is None
    assert energy_of_op(_work(matrix=1.0, dtype="float32"), 0.0, target_device("T4")) is not None
    assert energy_of_step([], 1.0, target_device("GH200-96GB")) is None
    assert energy_of_step([(_work(vector=1.0), 1.0, 1.0)], 1.0, target_device("MI300X")) is None
    sheet = target_device("T4").sheet
    assert sheet is not None
    without = replace(target_device("T4"), sheet=replace(sheet, board_power_w=None))
    assert energy_of_step([], 1.0, without) is None
    assert static_w(700.0) == pytest.approx(155.0)


def test_the_energy_of_float64_is_not_that_of_16_bits() -> None:
    # 19.5 TFLOP/s of float64 on the matrix unit, 9.7 beside it; no constant for either.
    a100 = target_device("A100-SXM-80GB")
    assert energy_of_op(_work(matrix=1e12, dtype="float64"), 0.0, a100) is None
    assert energy_of_op(_work(vector=1e12, dtype="float64"), 0.0, a100) is None
    assert energy_of_op(_work(matrix=1e12, dtype="float64"), 0.0, target_device("T4")) is None
    c = coefficients_of(a100.sheet)
    assert product_clock_share(a100, c, "float64", 1e18, on_matrix=True) == 1.0
    assert product_clock_share(a100, c, "float16", 1e18, on_matrix=True) < 0.1
