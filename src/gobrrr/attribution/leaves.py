"""The accounting: every nanosecond of a step in exactly one leaf; leaves sum to the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gobrrr.roofline.roof import COMPUTE_MATRIX as COMPUTE_MATRIX
from gobrrr.roofline.roof import COMPUTE_VECTOR as COMPUTE_VECTOR
from gobrrr.roofline.roof import MEMORY as MEMORY
from gobrrr.work.estimate import Work

LEAVES: tuple[str, ...] = (
    "compute.matrix.roof",
    "compute.matrix.below",
    "compute.vector.roof",
    "compute.vector.below",
    "compute.unmodelled",
    "memory.device.roof",
    "memory.device.below",
    "memory.page_faults",
    "memory.copies",
    "memory.network",
    "memory.network_wait",
    "memory.unmodelled",
    "overhead.python",
    "overhead.asleep",
    "overhead.dispatch",
    "overhead.launch",
    "overhead.kernel_gap",
    "overhead.synchronisation",
    "overhead.data_loading",
    "overhead.allocation",
    "overhead.compilation",
    "overhead.garbage_collection",
    "overhead.kernel_fixed_cost",
    "overhead.unexplained",
    "unmodelled",
)
# Overhead that is the device's own, whatever its host does.
OF_THE_DEVICE: tuple[str, ...] = ("overhead.kernel_fixed_cost", "overhead.kernel_gap")
TOP_LEVELS: tuple[str, ...] = ("compute", "memory", "overhead", "unmodelled")

# A kernel's regime, as stored per kernel.
# The first three are those of a roof.
COMPUTE_UNMODELLED, MEMORY_UNMODELLED, UNMODELLED, COLLECTIVE, COPY = range(3, 8)
REGIME_NAMES: tuple[str, ...] = (
    "compute", "compute", "memory", "compute", "memory", "unmodelled", "memory", "memory",
)  # fmt: skip
# What moves data is called by what it is, where a single op or kernel is named.
MOVES = {COLLECTIVE: "collective", COPY: "copy"}
# Leaves that a regime's roof and below go to (an unmodelled kernel has one leaf for both).
ROOF_LEAF: tuple[str, ...] = (
    "compute.matrix.roof", "compute.vector.roof", "memory.device.roof",
    "compute.unmodelled", "memory.unmodelled", "unmodelled", "memory.network", "memory.copies",
)  # fmt: skip
BELOW_LEAF: tuple[str, ...] = (
    "compute.matrix.below", "compute.vector.below", "memory.device.below",
    "compute.unmodelled", "memory.unmodelled", "unmodelled", "memory.network", "memory.copies",
)  # fmt: skip


class AccountingError(AssertionError):
    """Leaves that do not sum to the step: a defect in gobrrr, never in the user's program."""


def empty_leaves() -> dict[str, float]:
    """Every leaf at zero."""
    return dict.fromkeys(LEAVES, 0.0)


@dataclass(frozen=True)
class IdleGap:
    """Time that no kernel owns, with its cause (a leaf name) and where it was spent.

    ``duration_ns`` is a mean per step. ``source`` is a line of the user's program; ``detail`` the
    call that blocked, for instance ``cudaStreamSynchronize in aten::item``.
    """

    duration_ns: float
    leaf: str
    source: str | None = None
    detail: str | None = None


@dataclass(frozen=True)
class KernelShares:
    """One row per kernel (on a CPU: per op that does work), mean over the steps attributed.

    ``op`` indexes ``works`` and names what the kernel is. Times in ns; ``owned_ns`` =
    ``fixed_ns`` + ``page_faults_ns`` + ``roof_ns`` + ``below_ns``. ``duration_ns`` is the whole
    kernel, ``full_roof_ns`` its roof before the share it owns was applied (NaN: no roof).
    """

    kernel: NDArray[np.int64]
    duration_ns: NDArray[np.float64]
    owned_ns: NDArray[np.float64]
    fixed_ns: NDArray[np.float64]
    page_faults_ns: NDArray[np.float64]
    roof_ns: NDArray[np.float64]
    below_ns: NDArray[np.float64]
    full_roof_ns: NDArray[np.float64]
    regime: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.kernel)

    def scaled(
        self,
        factor: float | NDArray[np.float64],
        *,
        roofs: float | NDArray[np.float64] = 1.0,
    ) -> KernelShares:
        """All times by ``factor``, ``full_roof_ns`` by ``roofs``: one for all, or one for each."""
        parts = {
            name: getattr(self, name) * factor
            for name in (
                "duration_ns", "owned_ns", "fixed_ns", "page_faults_ns", "roof_ns", "below_ns",
            )
        }  # fmt: skip
        return replace(self, full_roof_ns=self.full_roof_ns * roofs, **parts)


@dataclass(frozen=True)
class Attribution:
    """Where one step's time went.

    Attributes:
        step_ns: mean length of the windows attributed (or the unprofiled step time, once scaled).
        leaves_ns: all of ``LEAVES``.
        kernels: shares of each kernel; rows of ``Timeline.kernels`` for devices.
        works: the work of each row of ``kernels`` (``None``: no formula), aligned with it.
        idle: overhead in pieces, largest use: causes by line.
        windows: leaves of each window, in order.
        above_ceiling: rows of ``kernels`` faster than fixed cost plus roof.
    """

    step_ns: float
    leaves_ns: Mapping[str, float]
    kernels: KernelShares
    works: tuple[Work | None, ...] = ()
    idle: tuple[IdleGap, ...] = ()
    windows: tuple[Mapping[str, float], ...] = ()
    above_ceiling: tuple[int, ...] = ()
    notices: tuple[str, ...] = field(default=())

    def check(self) -> None:
        """Raise ``AccountingError`` unless the leaves are complete, not negative and sum up.

        The tolerance is 1 ns plus a billionth of the step: float rounding, nothing else.
        """
        if set(self.leaves_ns) != set(LEAVES):
            wrong = set(self.leaves_ns) ^ set(LEAVES)
            raise AccountingError(f"leaves missing or unknown: {sorted(wrong)}")
        tolerance = 1.0 + 1e-9 * abs(self.step_ns)
        for name, value in self.leaves_ns.items():
            if not value >= -tolerance:
                raise AccountingError(f"leaf {name} is {value} ns")
        total = sum(self.leaves_ns.values())
        if not abs(total - self.step_ns) <= tolerance:
            raise AccountingError(f"leaves sum to {total} ns, the step is {self.step_ns} ns")


def top_levels(leaves_ns: Mapping[str, float]) -> dict[str, float]:
    """Sums of the leaves under compute, memory, overhead and unmodelled, in the leaves' unit."""
    sums = dict.fromkeys(TOP_LEVELS, 0.0)
    for name, value in leaves_ns.items():
        sums[name.split(".", 1)[0]] += value
    return sums
