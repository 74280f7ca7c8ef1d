from __future__ import annotations

from dataclasses import replace

import pytest

from gobrrr.devices.ceilings import Ceiling, Ceilings
from gobrrr.prediction.kernels.kernel_model import estimate_op
from gobrrr.prediction.kernels.processor import (
    ProcessorCoefficients,
    ProcessorTime,
    time_on_processor,
)
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from prediction.kernels.toy_device import aten, spec, toy_device

# Everything as measured alone; packing free.
IDEAL = ProcessorCoefficients(
    product=1.0,
    convolution=1.0,
    library=0.5,
    packing=0.0,
    dram=1.0,
    cache=1.0,
    vector=1.0,
    stream=1.0,
)
OPERATORS = {
    "tanh": 1e9, "sqrt": 2e9, "index": 1e9, "max_pool2d_with_indices": 1e9, "transpose": 5e8,
    "bernoulli_": 1e8, "convolution": 2e11, "attention.16": 1e9, "attention.64": 2.5e8,
    "attention.query": 1e7,
}  # fmt: skip


def processor(**rows: float) -> TargetDevice:
    toy = toy_device("cpu", None)
    named = {f"operator.{name}": value for name, value in OPERATORS.items()} | rows
    made = {name: Ceiling(name, value, "", "given", "test") for name, value in named.items()}
    ceilings = Ceilings("toy", {**toy.ceilings.rows, **made}, toy.ceilings.levels)
    return replace(toy, ceilings=ceilings, kernel_fixed_s=0.0)


def timed(
    call: OpCall, device: TargetDevice | None = None, cold: float = 0.0,
    coefficients: ProcessorCoefficients = IDEAL,
) -> ProcessorTime:  # fmt: skip
    work = work_of(call)
    assert work is not None
    found = time_on_processor(call, work, device or processor(), cold, coefficients)
    assert found is not None
    return found


def test_an_operators_own_rate_and_its_traffic_add_up() -> None:
    # 100 000 elements at 1 G/s are 100 us; 0.8 MB at 4 TB/s from the cache are 0.2 us.
    found = timed(aten("tanh", spec(100_000)))
    assert found.compute_s == pytest.approx(100e-6)
    assert found.memory_s == pytest.approx(0.2e-6)
    assert found.seconds == pytest.approx(100.2e-6)
    assert "measured rate of tanh" in found.how


def test_cold_bytes_come_at_the_memorys_rate() -> None:
    # Half of them from memory: 0.4 us at 1 TB/s and 0.1 us at 4 TB/s.
    found = timed(aten("tanh", spec(100_000)), cold=400_000)
    assert found.memory_s == pytest.approx(0.5e-6)


def test_an_operator_that_works_like_another_has_its_rate() -> None:
    assert timed(aten("sqrt_", spec(1000))).compute_s == pytest.approx(0.5e-6)
    # Drawn one by one: 1000 at 0.1 G/s.
    assert timed(aten("bernoulli", spec(1000))).compute_s == pytest.approx(10e-6)


def test_an_operator_without_a_rate_goes_at_the_vector_units() -> None:
    # 1e6 additions at 1 TFLOP/s.
    found = timed(aten("add", spec(1_000_000), spec(1_000_000)))
    assert found.compute_s == pytest.approx(1e-6, rel=0.01)
    assert found.how == "a pass over memory"


def test_a_copy_across_rows_goes_element_by_element() -> None:
    turned = spec(512, 256, strides=(1, 512))
    found = timed(aten("clone", turned, outputs=(spec(512, 256),)))
    assert found.compute_s == pytest.approx(512 * 256 / 5e8)
    straight = timed(aten("clone", spec(512, 256), outputs=(spec(512, 256),)))
    assert straight.compute_s == 0.0


def test_windows_are_counted_element_by_element() -> None:
    call = aten("max_pool2d_with_indices", spec(1, 4, 32, 32), (3, 3), (2, 2), (1, 1),
                outputs=(spec(1, 4, 16, 16), spec(1, 4, 16, 16, dtype="int64")))  # fmt: skip
    assert timed(call).compute_s == pytest.approx(9 * 4 * 256 / 1e9)


def test_a_product_runs_at_its_share_and_pays_for_packing() -> None:
    call = aten("mm", spec(500, 500), spec(500, 500), outputs=(spec(500, 500),))
    # 250 MFLOP at 1 TFLOP/s; 3 MB at 4 TB/s.
    found = timed(call)
    assert found.compute_s == pytest.approx(250e-6)
    assert found.memory_s == pytest.approx(0.75e-6)
    # The 2 MB of inputs twice more through the cache.
    packed = timed(call, coefficients=replace(IDEAL, packing=2.0, product=0.5))
    assert packed.compute_s == pytest.approx(500e-6)
    assert packed.memory_s == pytest.approx(1.75e-6)


def test_a_matrix_times_a_vector_is_read_once_and_hides_the_arithmetic_or_is_hidden() -> None:
    call = aten("mm", spec(1, 500), spec(500, 500, strides=(1, 500)), outputs=(spec(1, 500),))
    moved = 4 * (500 + 250_000 + 500)
    # 0.5 MFLOP at 1 TFLOP/s are 0.5 us, whatever share products reach; 1 MB at 4 TB/s 0.25 us.
    hidden = timed(call, coefficients=replace(IDEAL, product=0.5, packing=2.0))
    assert (hidden.compute_s, hidden.memory_s) == (pytest.approx(0.5e-6), 0.0)
    # From memory at 1 TB/s, and at half of it: the arithmetic is over before.
    cold = timed(call, cold=moved, coefficients=replace(IDEAL, stream=0.5, dram=0.1, packing=2.0))
    assert (cold.compute_s, cold.memory_s) == (0.0, pytest.approx(moved / 0.5e12))
    # Two rows are a product, as are many vectors: they are packed.
    for call in (
        aten("mm", spec(2, 500), spec(500, 500), outputs=(spec(2, 500),)),
        aten("bmm", spec(3, 1, 500), spec(3, 500, 500), outputs=(spec(3, 1, 500),)),
    ):
        packed = timed(call, coefficients=replace(IDEAL, packing=1.0))
        assert packed.memory_s > timed(call).memory_s
        assert packed.compute_s == timed(call).compute_s > 0


def test_products_read_their_panels_in_order() -> None:
    call = aten("mm", spec(500, 500), spec(500, 500), outputs=(spec(500, 500),))
    # 3 MB, and 2 MB packed, at half of 4 TB/s; what other ops reach of a cache says nothing of it.
    found = timed(call, coefficients=replace(IDEAL, cache=0.1, stream=0.5, packing=1.0))
    assert found.memory_s == pytest.approx(2.5e-6)


def test_a_convolution_goes_at_the_measured_convolutions_rate() -> None:
    call = aten("convolution", spec(2, 64, 32, 32), spec(64, 64, 3, 3), None, (1, 1), (1, 1),
                (1, 1), False, (0, 0), 1, outputs=(spec(2, 64, 32, 32),))  # fmt: skip
    flops = 2 * 2 * 64 * 1024 * 64 * 9
    assert timed(call).compute_s == pytest.approx(flops / 2e11)
    # Where none was measured, at a share of a product's.
    assert timed(call, toy_device("cpu", None)).compute_s == pytest.approx(flops / 0.5e12)


def attention(keys: int, size: int = 64, causal: bool = False, queries: int = 256) -> OpCall:
    q, kv = spec(1, 4, queries, size), spec(1, 4, keys, size)
    return aten("_scaled_dot_product_flash_attention_for_cpu", q, kv, kv, 0.0, causal,
                outputs=(q, spec(1, 4, queries)))  # fmt: skip


def test_attention_goes_by_scores_and_queries() -> None:
    # 4 x 256 x 256 scores at 0.25 G/s; 4 x 256 queries, each 100 ns less 8 scores of 1 ns.
    assert timed(attention(256)).compute_s == pytest.approx(4 * 65536 * 4e-9 + 1024 * 92e-9)
    # Between 1 ns at 16 and 4 ns at 64: 2 ns at 32. Beyond the last size as the arithmetic grows.
    assert timed(attention(256, 32)).compute_s == pytest.approx(4 * 65536 * 2e-9 + 1024 * 92e-9)
    assert timed(attention(256, 128)).compute_s == pytest.approx(4 * 65536 * 8e-9 + 1024 * 92e-9)


def test_causal_attention_leaves_out_whole_blocks_of_keys() -> None:
    # Up to one block of 512 keys nothing is left out.
    assert timed(attention(256, causal=True)) == timed(attention(256))
    # Two by two blocks: one of four is never seen.
    whole = timed(attention(1024, queries=1024)).compute_s - 4096 * 92e-9
    causal = timed(attention(1024, causal=True, queries=1024)).compute_s - 4096 * 92e-9
    assert causal == pytest.approx(0.75 * whole)


def test_fresh_large_results_fault_their_pages_in() -> None:
    device = replace(
        processor(page_fault=1e-6, **{"page_fault.size": 4096.0}), mapped_from_bytes=1 << 20
    )
    x = spec(1 << 20, storage=1)
    fresh = timed(aten("mul", x, 2.0, outputs=(spec(1 << 20, storage=2),)), device)
    assert fresh.page_faults_s == pytest.approx(1024e-6)
    # Written over its own argument, small, or with an allocator that keeps its memory: none.
    assert timed(aten("mul_", x, 2.0, outputs=(x,)), device).page_faults_s == 0.0
    small = aten("mul", spec(1000, storage=1), 2.0, outputs=(spec(1000, storage=2),))
    assert timed(small, device).page_faults_s == 0.0
    kept = replace(device, mapped_from_bytes=None)
    assert timed(aten("mul", x, 2.0, outputs=(spec(1 << 20, storage=2),)), kept).page_faults_s == 0


def test_the_estimate_holds_its_page_faults_and_is_bound_by_memory() -> None:
    device = replace(
        processor(page_fault=1e-6, **{"page_fault.size": 4096.0}), mapped_from_bytes=1 << 20
    )
    call = aten("mul", spec(1 << 20, storage=1), 2.0, outputs=(spec(1 << 20, storage=2),))
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, device)
    assert found is not None
    assert found.page_faults_s == pytest.approx(1024e-6)
    assert found.time_s >= found.page_faults_s + found.roof.time_s
    assert found.regime == "memory"
