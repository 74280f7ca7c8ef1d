"""What cannot be true of a step: an error of gobrrr's own, said as such.

No verdict is drawn from a diagnosis that contradicts itself.
"""

from __future__ import annotations

import numpy as np

from gobrrr.attribution.leaves import KernelShares
from gobrrr.timeline.quantities import count, share, time_text

# Clocks above a data sheet's and the spread of a measured ceiling: up to here a share of a peak may
# exceed 1 without anything being wrong.
MFU_TOLERANCE = 1.05
# Caches and a rounded ceiling explain less than a roof beaten threefold; single tiny kernels say
# nothing about the step.
ROOF_BEATEN, ROOF_BEATEN_SHARE = 3.0, 0.1
_WHY = (
    "the work and the time do not belong to the same steps, or a ceiling is wrong. This is an "
    "error in gobrrr, so there is no verdict and no prediction."
)


def contradictions(mfu: float | None, shares: KernelShares, step_s: float) -> list[str]:
    """Sentences on what cannot be true; empty where nothing is wrong.

    Args:
        mfu: share of the matrix peak that the step would reach.
        shares: the step's kernels with their roofs.
        step_s: the step.
    """
    found = []
    if mfu is not None and mfu > MFU_TOLERANCE:
        found.append(f"The MFU would be {share(mfu, 1.0)}, which is impossible: {_WHY}")
    with np.errstate(invalid="ignore"):
        beaten = shares.full_roof_ns > ROOF_BEATEN * np.maximum(shares.duration_ns, 1.0)
    roofs_s = float(shares.full_roof_ns[beaten].sum()) * 1e-9
    if step_s > 0 and roofs_s > ROOF_BEATEN_SHARE * step_s:
        took_s = float(shares.duration_ns[beaten].sum()) * 1e-9
        found.append(
            f"{count(int(beaten.sum()))} kernels take {time_text(took_s)} where their work needs "
            f"at least {time_text(roofs_s)} at the ceilings, which is impossible: {_WHY}"
        )
    return found
