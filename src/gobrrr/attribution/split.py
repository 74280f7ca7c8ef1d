"""The one split of a kernel's time: fixed cost, roof, page faults, what lies below the roof."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gobrrr.attribution.leaves import (
    BELOW_LEAF,
    COLLECTIVE,
    COPY,
    ROOF_LEAF,
    KernelShares,
    empty_leaves,
)
from gobrrr.roofline.roof import Roof

Float64 = NDArray[np.float64]


def split_kernels(
    kernel: NDArray[np.int64],
    duration_ns: Float64,
    regime: NDArray[np.uint8],
    roof_ns: Float64,
    *,
    fixed_ns: Float64 | float = 0.0,
    page_faults_ns: Float64 | float = 0.0,
    owned: Float64 | float = 1.0,
) -> KernelShares:
    """Splits kernels of duration d; all columns are of the same length, times in ns.

    fixed = min(f, d), roof = min(r, what is left), page faults = min(p, what is left), below = the
    rest: the work itself has its time first. A kernel that owns only a share of its time owns the
    same share of each part. Copies and collectives are neither: all of their time is below.

    Args:
        kernel: what each row is (``KernelShares.kernel``).
        duration_ns: of the whole kernel.
        regime: of each row, see ``gobrrr.attribution.leaves``.
        roof_ns: of the whole kernel; NaN where there is no formula or no ceiling.
        fixed_ns: the time of such a kernel that does nothing.
        page_faults_ns: bringing in fresh memory.
        owned: the share of its time that the kernel owns, 0 to 1.
    """
    moves = (regime == COPY) | (regime == COLLECTIVE)
    fixed = np.where(moves, 0.0, np.minimum(fixed_ns, duration_ns))
    left = duration_ns - fixed
    known = np.where(np.isnan(roof_ns) | moves, 0.0, roof_ns)
    roof = np.minimum(known, left)
    left = left - roof
    faults = np.where(moves, 0.0, np.minimum(page_faults_ns, left))
    return KernelShares(
        kernel=kernel,
        duration_ns=duration_ns,
        owned_ns=duration_ns * owned,
        fixed_ns=fixed * owned,
        page_faults_ns=faults * owned,
        roof_ns=roof * owned,
        below_ns=(left - faults) * owned,
        full_roof_ns=roof_ns,
        regime=regime,
    )


def roof_times_ns(roofs: Sequence[Roof | None]) -> Float64:
    """Roofs in ns, NaN where there is none."""
    return np.array([np.nan if roof is None else roof.time_s * 1e9 for roof in roofs], np.float64)


def leaves_of_kernels(shares: KernelShares, fixed_leaf: str) -> dict[str, float]:
    """What kernels put into each leaf, in ns; ``fixed_leaf`` takes their fixed cost.

    On a CPU an op's fixed cost is paid in the calling thread: it is ``overhead.dispatch``.
    """
    leaves = empty_leaves()
    leaves[fixed_leaf] += float(shares.fixed_ns.sum())
    leaves["memory.page_faults"] += float(shares.page_faults_ns.sum())
    size = len(ROOF_LEAF)
    roof = np.bincount(shares.regime, weights=shares.roof_ns, minlength=size)
    below = np.bincount(shares.regime, weights=shares.below_ns, minlength=size)
    for regime in range(size):
        leaves[ROOF_LEAF[regime]] += float(roof[regime])
        leaves[BELOW_LEAF[regime]] += float(below[regime])
    return leaves
