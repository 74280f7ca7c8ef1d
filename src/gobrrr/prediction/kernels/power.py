"""The clock that a board's power leaves to arithmetic.

A chip that would draw more than its board may lowers its clock, and with it its voltage. With
``e`` joules per FLOP at the full clock's voltage, a rate of ``R`` FLOP/s at the full clock, and the
share ``s`` of that clock, the board draws

    P(s) = P_static + e * R * s * v(s)^2

(dynamic power is capacitance x voltage^2 x frequency: Rabaey, "Digital Integrated Circuits",
chapter 5). The share is the largest one up to 1 with P(s) at most the board's power.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gobrrr.prediction.kernels.architectures import of_architecture
from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.target import TargetDevice

Float64 = NDArray[np.float64]

# Leakage, memory, fans and converters of a board in its fast state: a few watts, and a share that
# grows with the board. An approximation: idle boards held at their fast clocks report 25 to 40 W of
# 70 and 100 to 150 W of 700.
STATIC_W, STATIC_SHARE = 15.0, 0.2
# Voltage falls with the clock down to about 0.62 of that at full clock, at 0.45 of the clock (0.65
# of 1.05 V on 16 to 4 nm); below it only the clock falls.
_LOWEST_VOLTAGE, _CLOCK_AT_LOWEST = 0.62, 0.45
# Edge of the tiles of a float32 product of which the energy of a FLOP is stated.
_STATED_TILE = 128
# What arithmetic is left at the least, however much the memory draws.
_LEAST_LEFT = 0.05
# Halvings of the clock's range until a share is known to a part in a hundred million.
_HALVINGS = 27


# Shares of the clock, and the dynamic power at each over that at the full clock. Straight lines
# between them are off by less than a ten-millionth.
_CLOCKS = np.concatenate([[0.0], np.linspace(_CLOCK_AT_LOWEST, 1.0, 2049)])
_VOLTAGES = np.interp(_CLOCKS, [_CLOCK_AT_LOWEST, 1.0], [_LOWEST_VOLTAGE, 1.0])
_DYNAMIC = _CLOCKS * _VOLTAGES**2


def _clock_with(dynamic: Float64) -> Float64:
    """The share of the clock, up to 1, whose dynamic power is this share of the full clock's."""
    return np.asarray(np.interp(dynamic, _DYNAMIC, _CLOCKS))


def static_w(board_w: float) -> float:
    """Watts that a board draws besides its arithmetic."""
    return STATIC_W + STATIC_SHARE * board_w


def clock_share(device: TargetDevice, joules_per_flop: float | None, flops_per_s: float) -> float:
    """Share of the full clock at which arithmetic of ``flops_per_s`` (at full clock) can go on.

    1 where the board's power or the energy of a FLOP is not known.
    """
    sheet = device.sheet
    if sheet is None or sheet.board_power_w is None or joules_per_flop is None:
        return 1.0
    board_w = sheet.board_power_w.value
    left = (board_w - static_w(board_w)) / (joules_per_flop * flops_per_s)
    return float(_clock_with(np.array(left)))


def product_clock_share(
    device: TargetDevice, c: Coefficients, dtype: str, rate_flops_per_s: float, on_matrix: bool
) -> float:
    """As ``clock_share``, for matrix products of ``dtype`` at their achieved full-clock rate.

    Energy goes with the bits that are multiplied: 8-bit inputs take half of what 16-bit ones take,
    TF32 twice as much (the rates of the matrix unit go the same way, so that its power is one).
    """
    return clock_share(device, product_energy_j(c, dtype, on_matrix), rate_flops_per_s)


def product_energy_j(c: Coefficients, dtype: str, on_matrix: bool) -> float | None:
    """Joules per FLOP of products at the full clock; ``None`` where that is not known.

    Float64 is not: its units are built apart, in numbers that differ by generation (a sixteenth of
    16 bits' rate on an A100, a sixtieth on a B200), and no constant here was compared with them.
    """
    if not on_matrix:
        return None if dtype == "float64" else c.float32_energy_j
    share = OF_16_BITS.get(dtype)
    if c.matrix_energy_j is None or share is None:
        return None
    return c.matrix_energy_j * share


# Energy of a FLOP by the inputs' dtype, over that of 16 bits.
OF_16_BITS = {
    "float16": 1.0, "bfloat16": 1.0, "tf32": 2.0,
    "int8": 0.5, "float8_e4m3fn": 0.5, "float8_e5m2": 0.5, "float4_e2m1fn_x2": 0.25,
}  # fmt: skip


# Joules per byte of memory: 3.9 pJ per bit of HBM2 and 14 of GDDR5 (O'Connor et al., "Fine-Grained
# DRAM", MICRO 2017), 7.5 of GDDR6 (Micron, "GDDR6X" technical brief, which compares them). Later
# HBM and GDDR7 are taken as these.
_HBM_J, _GDDR5_J, _GDDR6_J = 8 * 3.9e-12, 8 * 14e-12, 8 * 7.5e-12
_MEMORY_J = {
    "Pascal GP100": _HBM_J, "Volta": _HBM_J, "Ampere GA100": _HBM_J, "Hopper": _HBM_J,
    "Blackwell": _HBM_J, "Pascal GP104": _GDDR5_J, "Turing": _GDDR6_J, "Ampere GA10x": _GDDR6_J,
    "Ada": _GDDR6_J, "RTX Blackwell": _GDDR6_J,
}  # fmt: skip


def joules_per_byte(device: TargetDevice) -> float | None:
    """Joules of a byte from the device's memory or to it; ``None`` where they are not known."""
    return of_architecture(_MEMORY_J, device.architecture)


def energy_of_tiles(rows: Float64, columns: Float64, c: Coefficients) -> Float64:
    """Energy of a FLOP in tiles of ``rows`` x ``columns``, over that in tiles of 128 x 128.

    For each step of k a tile brings (rows + columns) inputs from the second-level cache through
    registers to shared memory, for 2 rows x columns FLOPs. That costs: 15.5 pJ a bit from the
    second-level cache and 5 to 6 pJ for each further move on a K40 (Arunkumar et al.,
    "Understanding the Future of Energy Efficiency in Multi-Module GPUs", HPCA 2019).
    """
    edge = 1.0 + c.energy_edge * (1.0 / rows + 1.0 / columns)
    return edge / (1.0 + c.energy_edge * 2.0 / _STATED_TILE)


def vector_product_clock_shares(
    device: TargetDevice, c: Coefficients, flops: Float64, arithmetic_s: Float64,
    traffic_s: Float64, cold_bytes: Float64,
) -> Float64:  # fmt: skip
    """Shares of the full clock at which ways to compute a float32 product can go on.

    ``flops``: of each way, with what its tiles compute beyond the product's edges: a product with
    zero is issued as any other, and to fetch, decode and feed an instruction takes some 20 times
    the energy of its arithmetic (W. Dally, "Hardware for Deep Learning", Hot Chips 2023).
    ``arithmetic_s``: of each way at the full clock; ``traffic_s``: in which it moves ``cold_bytes``
    from and to the memory. The largest share whose energy the board gives in the time that the way
    takes at that share: ``arithmetic_s / share``, or ``traffic_s`` where that is more, so that a
    way that waits for memory is left its clock.
    """
    sheet = device.sheet
    if sheet is None or sheet.board_power_w is None or c.float32_energy_j is None:
        return np.ones_like(arithmetic_s)
    # All over the energy of the arithmetic at the full clock, which goes with the voltage's square.
    watts = sheet.board_power_w.value - static_w(sheet.board_power_w.value)
    full_j = c.float32_energy_j * flops
    moving = (joules_per_byte(device) or 0.0) * cold_bytes / full_j
    given, waiting = watts * arithmetic_s / full_j, watts * traffic_s / full_j
    low, high = np.zeros_like(moving), np.ones_like(moving)
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        needed = moving + np.interp(share, _CLOCKS, _VOLTAGES) ** 2
        enough = needed <= np.maximum(given / share, waiting)
        low, high = np.where(enough, share, low), np.where(enough, high, share)
    return np.maximum(high, _LEAST_LEFT)
