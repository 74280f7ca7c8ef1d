"""Kernels that sort or choose."""

from __future__ import annotations

import pytest

from gobrrr.prediction.kernels.kernel_model import KernelEstimate, estimate_op
from gobrrr.prediction.kernels.target import target_device
from gobrrr.timeline.ops import OpCall
from gobrrr.work import work_of
from prediction.kernels.toy_device import aten, spec

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


def test_a_median_of_all_takes_as_long_as_a_sort() -> None:
    x, one = spec(1 << 24), spec()
    sorted_ = _estimate(aten("sort", x, 0, False, outputs=(x, spec(1 << 24, dtype="int64"))))
    median = _estimate(aten("median", x, outputs=(one,)))
    assert median.time_s == pytest.approx(sorted_.time_s, rel=0.05)


@pytest.mark.parametrize("name", ["median", "nanmedian", "kthvalue"])
def test_a_number_of_each_row_is_found_two_bits_at_a_time(name: str) -> None:
    def found(rows: int, length: int) -> KernelEstimate:
        out = (spec(rows), spec(rows, dtype="int64"))
        rank = (5,) if name == "kthvalue" else ()
        return _estimate(aten(name, spec(rows, length), *rank, 1, False, outputs=out))

    # 32,768 rows of 512: 4 on each of 132 multiprocessors, 63 rounds of 5 passes to tell 512
    # numbers apart, one for NaNs and one for the place, each a trip of 0.7 us.
    assert found(32_768, 512).time_s == pytest.approx(63 * 7 * 0.7e-6, rel=0.1)
    # Rows that are there at once do not wait for each other.
    assert found(528, 512).time_s < 3 * found(1, 512).time_s
    assert found(65_536, 512).time_s > 1.9 * found(32_768, 512).time_s


def test_a_permutation_is_a_sort_of_random_keys() -> None:
    def found(n: int) -> KernelEstimate:
        return _estimate(aten("randperm", n, outputs=(spec(n, dtype="int64"),)))

    # Collisions among 4 M keys of 47 bits are unlikely: 6 passes that read and write 16 bytes for
    # each; before them numbers and keys, after them a look at equal keys.
    large = found(1 << 22)
    assert large.kernels == 3 + 6
    least_s = 6 * 32 * (1 << 22) / 3.35e12
    assert least_s < large.time_s < 2.5 * least_s
    # 1000 keys of 23 bits are three passes.
    assert found(1000).kernels == 3 + 3


def test_few_numbers_are_compared_with_all_others() -> None:
    def found(tested: int) -> KernelEstimate:
        n = 1 << 24
        inputs = (spec(n, dtype="int64"), spec(tested, dtype="int64"))
        return _estimate(aten("isin", *inputs, False, False, outputs=(spec(n, dtype="bool"),)))

    # A byte for each of 2^24 x 100 comparisons is written and read.
    assert found(100).time_s > 2 * (1 << 24) * 100 / 3.35e12
    assert found(100).kernels == 3
    # Twice as many comparisons, twice the time; from 10 n^0.145 = 111 numbers on they are sorted.
    assert found(100).time_s == pytest.approx(2 * found(50).time_s, rel=0.1)
    assert found(112).kernels == 1


def test_each_distance_is_a_block_of_threads_however_short_the_rows() -> None:
    def found(rows: int, width: int) -> KernelEstimate:
        out = spec(rows, 100)
        return _estimate(aten("_cdist_forward", spec(rows, width), spec(100, width), 1.0, None,
                              outputs=(out,)))  # fmt: skip

    # 240,000 blocks of 256 threads, 100 slots each: at 128 lanes of 132 multiprocessors.
    least_s = 240_000 * 256 * 100 / (128 * 132 * 1.98e9)
    assert least_s < found(2400, 4).time_s < 2 * least_s
    assert found(2400, 64).time_s < 1.1 * found(2400, 4).time_s
    assert found(4800, 4).time_s == pytest.approx(2 * found(2400, 4).time_s, rel=0.1)
    # The pairs of 693 rows are as many.
    pairs = spec(693 * 692 // 2)
    own = _estimate(aten("_pdist_forward", spec(693, 4), 2.0, outputs=(pairs,)))
    assert own.time_s == pytest.approx(found(2400, 4).time_s, rel=0.05)
