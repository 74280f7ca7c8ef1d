from __future__ import annotations

import pytest

from gobrrr.devices import MemoryLevel

DRAM = MemoryLevel("dram", None, ((0.0, 40.0), (0.5, 30.0), (1.0, 20.0)), 60.0)


def test_time_per_byte_is_interpolated_between_mixes() -> None:
    # A quarter written lies half-way: (1/40 + 1/30) / 2 = 7/240 s per byte.
    assert DRAM.bandwidth_bytes_per_s(0.25) == pytest.approx(240 / 7)


def test_seconds_of_a_mix() -> None:
    # 60 read, 60 written, all different: a copy at 30 B/s.
    assert DRAM.seconds(60, 60, 120) == pytest.approx(4.0)
    # read alone
    assert DRAM.seconds(80, 0, 80) == pytest.approx(2.0)
    assert DRAM.seconds(0, 0, 0) == 0.0


def test_bytes_updated_in_place_go_at_their_own_rate() -> None:
    # 60 read and written back: 120 bytes at 60 B/s.
    assert DRAM.seconds(60, 60, 60) == pytest.approx(2.0)
    # a += b: 120 read, 60 written, 120 different. 2 * 60 in place: 2 s; 60 only read: 1.5 s.
    assert DRAM.seconds(120, 60, 120) == pytest.approx(3.5)


def test_bytes_read_twice_are_no_update() -> None:
    # 100 read of 50 different ones, nothing written: at the rate of reads.
    assert DRAM.seconds(100, 0, 50) == pytest.approx(2.5)


def test_without_an_update_rate_the_mix_decides() -> None:
    level = MemoryLevel("dram", None, ((0.0, 40.0), (0.5, 30.0)))
    assert level.seconds(60, 60, 60) == pytest.approx(4.0)
