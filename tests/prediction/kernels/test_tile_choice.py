"""Which tile cuBLAS takes, and what the board's power leaves of the clock."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gobrrr.prediction.kernels.coefficients import Coefficients, coefficients_of
from gobrrr.prediction.kernels.power import (
    energy_of_tiles,
    joules_per_byte,
    static_w,
    vector_product_clock_shares,
)
from gobrrr.prediction.kernels.products import Product, TiledTime, time_of_product
from gobrrr.prediction.kernels.target import TargetDevice, target_device

P4 = target_device("P4")
OF_P4 = coefficients_of(P4.sheet)


def _time(m: int, n: int, k: int, device: TargetDevice, c: Coefficients) -> TiledTime:
    rate = device.ceilings.matrix_flops_per_s("float32")
    assert rate is not None
    product = Product(
        m, n, k, 1, "float32", 4.0 * (m * k + n * k + m * n), a_by_rows=True, b_by_rows=True
    )
    found = time_of_product(product, device, c, rate)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "tile"),
    [
        # Rows beyond a multiple of 128: 32 of them pad 64 rows less in tiles of 64, 96 do not. The
        # tiles are those that ran in measured rows.
        (1443, 9236, 201, (64, 64)),
        (2686, 61_202, 728, (128, 32)),
        # Alike in padding: 96 tiles of 64x64 a multiprocessor are 12 rounds of 8 either way; 98 are
        # 104 places of 8 a round, or 100 of 4.
        (1383, 14_206, 589, (64, 64)),
        (1777, 4470, 27_050, (128, 32)),
    ],
)
def test_a_p4_takes_the_tile_that_pads_least_in_fewest_rounds(
    rows: int, columns: int, depth: int, tile: tuple[int, int]
) -> None:
    assert _time(rows, columns, depth, P4, OF_P4).tile == tile


def test_a_way_that_waits_for_memory_is_left_its_clock() -> None:
    device = target_device("T4")
    c = coefficients_of(device.sheet)
    assert c.float32_energy_j is not None
    flops = 1e12
    # At 8 TFLOP/s arithmetic would take more than the 41 W that are left; at 1 TFLOP/s it does not.
    fast, slow = vector_product_clock_shares(
        device,
        c,
        np.array([flops, flops]),
        np.array([flops / 8e12, flops / 1e12]),
        np.zeros(2),
        np.zeros(2),
    )
    assert 0.4 < fast < 1.0 == slow
    # Memory at its peak takes its share of the board's power: 320 GB/s of GDDR6.
    busy, idle = vector_product_clock_shares(
        device,
        c,
        np.array([flops, flops]),
        np.array([0.125, 0.125]),
        np.array([0.125, 0.0]),
        np.array([0.125 * 320e9, 0.0]),
    )
    assert busy < idle
    per_byte = joules_per_byte(device)
    assert per_byte is not None
    left_w = 70 - static_w(70) - per_byte * 320e9
    assert left_w > 0


def test_without_a_stated_power_the_clock_stays() -> None:
    device = target_device("T4")
    c = coefficients_of(device.sheet)
    assert device.sheet is not None
    unknown = replace(device, sheet=replace(device.sheet, board_power_w=None))
    for where, numbers in ((unknown, c), (device, replace(c, float32_energy_j=None))):
        shares = vector_product_clock_shares(
            where, numbers, np.array([1e12]), np.array([0.01]), np.array([0.0]), np.array([0.0])
        )
        assert shares.tolist() == [1.0]


def test_products_of_a_70_w_board_are_slower_than_its_full_clock_allows() -> None:
    device = target_device("T4")
    c = coefficients_of(device.sheet)
    limited = _time(4096, 4096, 4096, device, c)
    free = _time(4096, 4096, 4096, device, replace(c, float32_energy_j=None))
    assert 1.15 < limited.seconds / free.seconds < 2.0


def test_products_with_zero_cost_power_as_any_other() -> None:
    device = target_device("T4")
    c = coefficients_of(device.sheet)
    # Tiles of 64 rows or more: 33 rows are issued as 64 are.
    for rows in (33, 64):
        limited = _time(rows, 16_384, 4096, device, c)
        free = _time(rows, 16_384, 4096, device, replace(c, float32_energy_j=None))
        assert limited.tile[0] == 64
        assert limited.compute_s > 1.05 * free.compute_s


def test_small_tiles_take_more_energy_for_a_flop() -> None:
    c = replace(OF_P4, energy_edge=32.0)
    rows, columns = np.array([128.0, 64.0, 32.0]), np.array([128.0, 64.0, 128.0])
    # 1 + 32 / 128 + 32 / 128 of the largest: 1.5; 2.0 and 2.25 of the others.
    assert energy_of_tiles(rows, columns, c).tolist() == pytest.approx([1.0, 2 / 1.5, 1.5])
    assert energy_of_tiles(rows, columns, OF_P4).tolist() == [1.0, 1.0, 1.0]
    # So a board of 70 W lowers its clock further for batches, whose tiles are small.
    device = target_device("T4")
    of_t4 = coefficients_of(device.sheet)
    assert of_t4.energy_edge > 0
    rate = device.ceilings.matrix_flops_per_s("float32")
    assert rate is not None
    batch = Product(1024, 1024, 1024, 64, "float32", 4.0 * 64 * 3 * 1024 * 1024, a_by_rows=True)
    found = time_of_product(batch, device, of_t4, rate)
    alike = time_of_product(batch, device, replace(of_t4, energy_edge=0.0), rate)
    assert found is not None
    assert alike is not None
    assert 1.05 < found.compute_s / alike.compute_s < 1.4


def test_more_traffic_in_the_same_arithmetic_never_takes_less_time() -> None:
    device = target_device("T4")
    c = coefficients_of(device.sheet)
    arithmetic = np.full(40, 1e-3)
    traffic = np.linspace(0.0, 4e-3, 40)
    shares = vector_product_clock_shares(
        device, c, np.full(40, 6e9), arithmetic, traffic, traffic * 240e9
    )
    seconds = np.maximum(arithmetic / shares, traffic)
    assert (np.diff(seconds) > -1e-9).all()
    # What waits for memory long enough has its whole clock.
    assert shares[0] < 1.0
    assert shares[-1] == 1.0


def test_few_large_blocks_share_what_many_small_ones_have_lost() -> None:
    # Beyond the same depth, in waves that start apart: measured at 0.19 of the peak in tiles of
    # 128x32 and at 0.11 in tiles of 64x64.
    large = _time(1844, 800, 65_000, P4, OF_P4)
    small = _time(2482, 3752, 55_600, P4, OF_P4)
    assert large.tile == (128, 32)
    assert small.tile == (64, 64)
    rate = [m * n * k / t.seconds for (m, n, k), t in
            (((1844, 800, 65_000), large), ((2482, 3752, 55_600), small))]  # fmt: skip
    assert rate[0] > 1.3 * rate[1]
