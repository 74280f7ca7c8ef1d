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
    share,
    si,
    significant,
    time_text,
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
