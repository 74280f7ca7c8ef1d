"""Kernels that sort or choose."""

from __future__ import annotations

import pytest

from gobrrr.models.kernel_model import KernelEstimate, estimate_op
from gobrrr.models.target import target_device
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from models.toy_device import aten, spec

H100 = target_device("H100-SXM")


def _estimate(call: OpCall) -> KernelEstimate:
    work = work_of(call)
    assert work is not None
    found = estimate_op(call, work, H100, cold_bytes=float(work.bytes_moved or 0))
    assert found is not None
    return found


def _top(rows: int, length: int, dtype: str = "float32") -> KernelEstimate:
    out = (spec(rows, 8, dtype=dtype), spec(rows, 8, dtype="int64"))
    return _estimate(aten("topk", spec(rows, length, dtype=dtype), 8, 1, True, True, outputs=out))


def test_a_few_of_one_long_row_are_found_sooner_than_all_are_sorted() -> None:
    x = spec(1 << 26)
    sorted_ = _estimate(aten("sort", x, 0, False, outputs=(x, spec(1 << 26, dtype="int64"))))
    assert 5 * x.numel * 4 / 3.35e12 < _top(1, 1 << 26).time_s < sorted_.time_s / 4


@pytest.mark.parametrize(
    ("rows", "length"), [(1, 20_000), (40, 10_000), (500, 3_000), (9_000, 400)]
)
def test_rows_are_divided_from_a_length_on(rows: int, length: int) -> None:
    assert _top(rows, length - 1).kernels == 2
    # As counted in a profile: 21 with keys of four bytes.
    assert _top(rows, length).kernels == 21
    assert _top(rows, length, "bfloat16").kernels == 11


def test_a_sample_takes_all_probabilities_through_several_kernels() -> None:
    x, out = spec(64, 128_256), spec(64, 1, dtype="int64")
    found = _estimate(aten("multinomial", x, 1, False, outputs=(out,)))
    size = 4.0 * x.numel
    # Three checks, random numbers, their quotient, the largest: 6 readings and 2 writings, of
    # which the cache serves most but the first.
    assert found.kernels == 6 + 7
    assert size / 3.35e12 < found.traffic_s < 8 * size / 3.35e12
    several = _estimate(aten("multinomial", x, 4, True, outputs=(spec(64, 4, dtype="int64"),)))
    assert several.kernels == 2
