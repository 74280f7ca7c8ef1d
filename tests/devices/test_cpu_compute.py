from __future__ import annotations

import pytest

from gobrrr.devices import Ceiling
from gobrrr.devices.cpu.compute import (
    GemmSweep,
    rows_computed_alike,
    torch_exponentials,
    vector_from_gemm,
)


def rate(name: str, value: float) -> Ceiling:
    return Ceiling(name, value, "FLOP/s", "measured", "a loop")


def by_name(*rows: Ceiling) -> dict[str, Ceiling]:
    return {row.name: row for row in rows}


def test_half_precision_without_its_own_arithmetic_runs_as_float32() -> None:
    rows = by_name(rate("vector.float32", 100.0), rate("vector.int8", 700.0))
    found = by_name(*rows_computed_alike(rows))
    assert set(found) == {"vector.bfloat16", "vector.float16", "vector.uint8", "vector.bool"}
    assert found["vector.bfloat16"].value == 100.0
    assert "computed in float32" in found["vector.bfloat16"].source
    assert found["vector.bool"].value == 700.0


def test_float16_arithmetic_that_is_faster_stays() -> None:
    rows = by_name(rate("vector.float32", 100.0), rate("vector.float16", 200.0))
    assert "vector.float16" not in by_name(*rows_computed_alike(rows))


def test_without_loops_a_gemm_shows_the_vector_units() -> None:
    rows = by_name(rate("matrix.float32", 90.0), rate("matrix.bfloat16", 400.0))
    # bfloat16 may run on a matrix unit: it says nothing on vectors.
    assert [(row.name, row.value) for row in vector_from_gemm(rows)] == [("vector.float32", 90.0)]


def test_a_measured_vector_rate_is_kept() -> None:
    rows = by_name(rate("matrix.float32", 90.0), rate("vector.float32", 100.0))
    assert list(vector_from_gemm(rows)) == []


@pytest.mark.torch
@pytest.mark.parametrize(("dtype", "unit"), [("float32", "FLOP/s"), ("int8", "op/s")])
def test_gemms_within_a_budget(dtype: str, unit: str) -> None:
    torch = pytest.importorskip("torch")
    row = GemmSweep(torch, dtype).run(0.05)
    assert row is not None
    assert (row.name, row.unit, row.how) == (f"matrix.{dtype}", unit, "measured")
    assert row.value > 0
    assert row.source.startswith("torch, ")


@pytest.mark.torch
def test_a_product_that_pytorch_lacks_has_no_row() -> None:
    torch = pytest.importorskip("torch")

    class Without:
        def __getattr__(self, name: str) -> object:
            if name in ("_int_mm", "quantize_per_tensor"):
                raise NotImplementedError("not on this processor")
            return getattr(torch, name)

    assert GemmSweep(Without(), "int8").run(0.05) is None


@pytest.mark.torch
def test_int8_products_are_those_of_the_fastest_library() -> None:
    torch = pytest.importorskip("torch")
    if torch.backends.quantized.engine == "none":
        pytest.skip("this PyTorch was built without quantised kernels")

    class WithoutPacked:
        def __getattr__(self, name: str) -> object:
            if name == "quantize_per_tensor":
                raise NotImplementedError("no quantised kernels")
            return getattr(torch, name)

    # Several passes: on a busy machine one may lose the processor.
    def best(of: object) -> float:
        sweep = GemmSweep(of, "int8")
        return max(row.value for row in (sweep.run(0.3) for _ in range(3)) if row is not None)

    # Where one library has a loop without instructions for it, the other is many times as fast.
    assert best(torch) > 0.5 * best(WithoutPacked())
    packed = GemmSweep(torch, "int8")._gemm((16, 32, 8), "packed")()
    # 32 products of 1 and 1, in whichever order.
    assert packed.dequantize().tolist() == [[32.0] * 8] * 16


@pytest.mark.torch
def test_exponentials_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    rows = by_name(*torch_exponentials(torch, 1))
    assert set(rows) == {"vector.float32.exp", "vector.float64.exp"}
    assert all(row.value > 0 and row.unit == "op/s" for row in rows.values())
