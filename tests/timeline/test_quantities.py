"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from gobrrr.measure.summary import Interval
from gobrrr.timeline.quantities import (
    TimeScale,
    binary_size,
    count,
    multiple,
    multiple_range,
    percent,
    percent_change,
    prefixed,
    quantity,
    share,
    si,
    significant,
    time_text,
    whole_seconds,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04123, "41.2 ms"),
        (0.004123, "4.12 ms"),
        (4.1234, "4.12 s"),
        (41.234, "41.2 s"),
        (412.34, "412 s"),
        (1800.0, "1800 s"),
        (0.99996, "1.00 s"),
        (0.9994, "999 ms"),
        (41.2e-6, "41.2 µs"),
        (4.12e-9, "4.12 ns"),
        (0.3e-9, "0.300 ns"),
        (-4e-6, "-4.00 µs"),
        (0.0, "0 s"),
        (None, "-"),
        (math.nan, "-"),
    ],
)
def test_time(seconds: float | None, text: str) -> None:
    assert time_text(seconds) == text


def test_all_times_of_a_table_share_a_unit() -> None:
    scale = TimeScale.of(0.100)
    assert [scale.number(t) for t in (0.100, 0.0123, 0.00004, 0.0, None)] == [
        "100.0", "12.3", "<0.1", "0.0", "-",
    ]  # fmt: skip


def test_scale_of_nothing() -> None:
    assert TimeScale.of(0.0).text(0.0) == "0.0 ms"


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (206e9, "FLOP/s", "206 GFLOP/s"),
        (34.12e9, "B/s", "34.1 GB/s"),
        (999.6e9, "B/s", "1.00 TB/s"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (989.4e12, "FLOP/s", "989 TFLOP/s"),
        (12, "B", "12.0 B"),
        (0, "B", "0 B"),
        (None, "B", "-"),
        (math.inf, "B", "-"),
        (2e21, "FLOP", "2000 EFLOP"),
        (0.25, "FLOP/s", "0.250 FLOP/s"),
    ],
)
def test_si(value: float | None, unit: str, text: str) -> None:
    assert si(value, unit) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.2494, "0.249"), (9.996, "10.0"), (31.84, "31.8"), (318.4, "318"), (3184.0, "3184"),
        (0, "0"), (None, "-"), (1e-9, "0.000000"),
    ],
)  # fmt: skip
def test_significant(value: float | None, text: str) -> None:
    assert significant(value) == text


def test_percent_and_share() -> None:
    assert [percent(f) for f in (0.464, 0.004, 0.0, 1.0, None)] == [
        "46 %", "<1 %", "0 %", "100 %", "-",
    ]  # fmt: skip
    assert percent(0.0004, 1) == "<0.1 %"
    assert share(1.0, 4.0) == "25 %"
    assert share(1.0, 0.0) == "-"


def test_count() -> None:
    assert [count(n) for n in (611.0, 2.5, 3.97, 12345.0, None)] == [
        "611", "2.5", "4", "12,345", "-",
    ]  # fmt: skip


def test_percent_change() -> None:
    changes = [percent_change(100.0, after) for after in (112.0, 77.0, 100.2, 100.0)]
    assert changes == ["+12 %", "-23 %", "+<1 %", ""]
    assert percent_change(2.0, 2.05, 1) == "+2.5 %"


def test_multiples() -> None:
    assert [multiple(v) for v in (1.254, 31.0, None)] == ["1.25x", "31.00x", "-"]
    assert multiple_range(Interval(1.254, 1.2, 1.31)) == "1.25x (1.20 to 1.31)"
    assert multiple_range(Interval(1.0, 0.998, 1.002), 3) == "1.000x (0.998 to 1.002)"
    assert multiple_range(Interval(2.0, 2.0, 2.0)) == "2.00x"


def test_sizes_of_caches() -> None:
    sizes = [binary_size(n) for n in (512, 48 * 1024, 1.25 * 2**20, 2**31, None)]
    assert sizes == ["512 B", "48 KiB", "1.25 MiB", "2 GiB", "-"]


@pytest.mark.parametrize(
    ("largest", "unit", "decimals"),
    [
        (4.123, "s", 3), (41.23, "s", 2), (0.04123, "ms", 1), (0.004123, "ms", 2),
        (9.994e-3, "ms", 2),
        (9.996e-3, "ms", 1), (0.99996, "s", 3), (0.9999, "ms", 1), (4e-6, "µs", 2), (4e-9, "ns", 2),
        (4e-10, "ns", 1), (0.0, "ms", 1),
    ],
)  # fmt: skip
def test_the_scale_of_a_table_follows_its_largest_time(
    largest: float, unit: str, decimals: int
) -> None:
    scale = TimeScale.of(largest)
    assert (scale.unit, scale.decimals) == (unit, decimals)
    assert scale.unit_s == {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}[unit]


def test_what_would_print_as_zero_is_said_to_be_less() -> None:
    scale = TimeScale.of(0.1)
    # 0.1 ms is the last digit: half of it rounds up.
    assert [scale.number(t) for t in (0.000051, 0.000049, -0.01, math.inf)] == [
        "0.1", "<0.1", "-10.0", "-",
    ]  # fmt: skip
    assert [percent(f) for f in (0.0051, 0.0049, -0.1, math.nan)] == ["1 %", "<1 %", "-10 %", "-"]
    assert (scale.text(None), scale.text(0.02)) == ("-", "20.0 ms")


def test_prefixes_read_and_written() -> None:
    assert [prefixed(1.5, prefix) for prefix in ("", "K", "M", "G", "T")] == [
        1.5, 1.5e3, 1.5e6, 1.5e9, 1.5e12,
    ]  # fmt: skip
    assert prefixed(2, "M", binary=True) == 2 * 1024**2
    assert [si(value) for value in (1e3, 999.4, 1e18, -5e6, 5e-4)] == [
        "1.00 k", "999", "1.00 E", "-5.00 M", "0.000500",
    ]  # fmt: skip
    assert (quantity(0.02, "s"), quantity(2e9, "B")) == ("20.0 ms", "2.00 GB")
    assert (whole_seconds(1800.4), whole_seconds(29.6)) == ("1,800 s", "30 s")


def test_from_ten_times_on_a_change_is_a_multiple() -> None:
    changes = [percent_change(2.0, after) for after in (19.98, 20.0, 290.0, 0.02)]
    assert changes == ["+899 %", "10x", "145x", "-99 %"]


def test_a_count_that_is_nearly_whole_is() -> None:
    assert [count(n) for n in (3.04, 3.06, -2.0, 1234.5, math.inf)] == [
        "3", "3.1", "-2", "1,234.5", "-",
    ]  # fmt: skip
