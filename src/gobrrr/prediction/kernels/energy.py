"""Energy of a step, from the power model's constants.

A board draws its static power as long as the step lasts, joules for each FLOP, and joules for each
byte that comes from its memory or goes there. Together they are at most the board's power: where
arithmetic alone would take more, its clock falls (``kernels.power``), and those kernels take the
board's power times their time. What bytes cost between the caches and the multiprocessors is
not counted, nor is the host.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gobrrr.prediction.kernels.architectures import of_architecture
from gobrrr.prediction.kernels.coefficients import (
    TSMC_5_NM,
    TSMC_7_NM,
    TURING_FLOAT32_J,
    coefficients_of,
)
from gobrrr.prediction.kernels.power import joules_per_byte, product_energy_j, static_w
from gobrrr.prediction.kernels.products import uses_matrix_unit
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.work.estimate import Work

# Joules per FLOP of float32 outside the matrix unit where no clock was fitted: the Turing constant
# (12 nm; 16 nm is its predecessor with the same rules) by what TSMC states of power at one speed.
_FLOAT32_J = {
    "Pascal": TURING_FLOAT32_J, "Volta": TURING_FLOAT32_J, "Turing": TURING_FLOAT32_J,
    "Ampere GA100": TURING_FLOAT32_J * TSMC_7_NM,
    **dict.fromkeys(
        ("Ada", "Hopper", "Blackwell", "RTX Blackwell"), TURING_FLOAT32_J * TSMC_7_NM * TSMC_5_NM
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OpEnergy:
    """What an op asks of a board beside its static power, in joules; before the board's limit."""

    arithmetic_j: float
    memory_j: float


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """Joules of one step on one device.

    Attributes:
        static_j: what the board draws whatever it does.
        arithmetic_j, memory_j: what FLOPs and bytes add, within the board's power.
        seconds: the step's time, over which ``static_j`` is counted.
        board_w: what the board may draw, in watts.
    """

    static_j: float
    arithmetic_j: float
    memory_j: float
    seconds: float
    board_w: float

    @property
    def joules(self) -> float:
        """All of it."""
        return self.static_j + self.arithmetic_j + self.memory_j

    @property
    def mean_w(self) -> float:
        """Watts over the step."""
        return self.joules / self.seconds if self.seconds > 0 else self.board_w


def energy_of_op(work: Work | None, cold_bytes: float, device: TargetDevice) -> OpEnergy | None:
    """Joules of an op's FLOPs and bytes; ``None`` where a constant of the device is not known.

    ``cold_bytes``: what it moves from or to memory. An op without known work counts its bytes.
    """
    memory_j = joules_per_byte(device)
    vector_j = of_architecture(_FLOAT32_J, device.architecture)
    if memory_j is None or device.kind != "cuda":
        return None
    arithmetic_j = 0.0
    if work is not None and work.matrix_flops:
        per_flop = _per_flop(work, device, vector_j)
        if per_flop is None:
            return None
        arithmetic_j += work.matrix_flops * per_flop
    if work is not None and work.vector_flops:
        if vector_j is None or work.compute_dtype == "float64":
            return None
        arithmetic_j += work.vector_flops * vector_j
    return OpEnergy(arithmetic_j, cold_bytes * memory_j)


def energy_of_step(
    ops: Iterable[tuple[Work | None, float, float]], step_s: float, device: TargetDevice
) -> StepEnergy | None:
    """Joules of a step of ``step_s`` seconds; its ops as (work, cold bytes, seconds of kernels).

    ``None`` where the board's power or a constant of its architecture is not known.
    """
    sheet = device.sheet
    if sheet is None or sheet.board_power_w is None:
        return None
    board_w = sheet.board_power_w.value
    always_w = static_w(board_w)
    arithmetic_j = memory_j = 0.0
    # By the identity of the work, which stays in it: ops that are alike share theirs.
    known: dict[tuple[int, float], tuple[Work | None, OpEnergy]] = {}
    for work, cold_bytes, seconds in ops:
        if seconds <= 0:
            continue
        alike = known.get((id(work), cold_bytes))
        if alike is None:
            of_op = energy_of_op(work, cold_bytes, device)
            if of_op is None:
                return None
            alike = known[id(work), cold_bytes] = (work, of_op)
        found = alike[1]
        wanted_j = found.arithmetic_j + found.memory_j
        within = min(1.0, (board_w - always_w) * seconds / wanted_j) if wanted_j > 0 else 0.0
        arithmetic_j += within * found.arithmetic_j
        memory_j += within * found.memory_j
    return StepEnergy(always_w * step_s, arithmetic_j, memory_j, step_s, board_w)


def _per_flop(work: Work, device: TargetDevice, vector_j: float | None) -> float | None:
    c = coefficients_of(device.sheet)
    on_matrix = uses_matrix_unit(work.compute_dtype, device)
    found = product_energy_j(c, work.compute_dtype, on_matrix)
    if found is not None or on_matrix or work.compute_dtype == "float64":
        return found
    return vector_j
