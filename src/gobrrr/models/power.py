"""The clock that a board's power leaves to arithmetic.

A chip that would draw more than its board may lowers its clock, and with it its voltage. With
``e`` joules per FLOP at the full clock's voltage, a rate of ``R`` FLOP/s at the full clock, and the
share ``s`` of that clock, the board draws

    P(s) = P_static + e * R * s * v(s)^2

(dynamic power is capacitance x voltage^2 x frequency: Rabaey, "Digital Integrated Circuits",
chapter 5). The share is the largest one up to 1 with P(s) at most the board's power.
"""

from __future__ import annotations

from gobrrr.models.coefficients import Coefficients
from gobrrr.models.target import TargetDevice

# Leakage, memory, fans and converters of a board in its fast state: a few watts, and a share that
# grows with the board. An approximation: idle boards held at their fast clocks report 25 to 40 W of
# 70 and 100 to 150 W of 700.
STATIC_W, STATIC_SHARE = 15.0, 0.2
# Voltage falls with the clock down to about 0.62 of that at full clock, at 0.45 of the clock (0.65
# of 1.05 V on 16 to 4 nm); below it only the clock falls.
_LOWEST_VOLTAGE, _CLOCK_AT_LOWEST = 0.62, 0.45
_HALVINGS = 30


def voltage_share(clock_share: float) -> float:
    """Voltage over that of the full clock, at a share of that clock."""
    if clock_share <= _CLOCK_AT_LOWEST:
        return _LOWEST_VOLTAGE
    above = (clock_share - _CLOCK_AT_LOWEST) / (1 - _CLOCK_AT_LOWEST)
    return _LOWEST_VOLTAGE + (1 - _LOWEST_VOLTAGE) * above


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
    if left >= 1.0:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if middle * voltage_share(middle) ** 2 <= left:
            low = middle
        else:
            high = middle
    return low


def product_clock_share(
    device: TargetDevice, c: Coefficients, dtype: str, rate_flops_per_s: float, on_matrix: bool
) -> float:
    """As ``clock_share``, for matrix products of ``dtype`` at their achieved full-clock rate.

    Energy goes with the bits that are multiplied: 8-bit inputs take half of what 16-bit ones take,
    TF32 twice as much (the rates of the matrix unit go the same way, so that its power is one).
    """
    if not on_matrix:
        return clock_share(device, c.float32_energy_j, rate_flops_per_s)
    energy_j = c.matrix_energy_j
    if energy_j is None:
        return 1.0
    return clock_share(device, energy_j * _OF_16_BITS.get(dtype, 1.0), rate_flops_per_s)


_OF_16_BITS = {
    "tf32": 2.0, "int8": 0.5, "float8_e4m3fn": 0.5, "float8_e5m2": 0.5, "float4_e2m1fn_x2": 0.25,
}  # fmt: skip
