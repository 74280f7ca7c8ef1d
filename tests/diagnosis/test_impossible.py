"""What cannot be true of a step is said to be an error of gobrrr's, and nothing is built on it."""

from __future__ import annotations

import numpy as np
import pytest

from gobrrr.attribution.leaves import KernelShares
from gobrrr.diagnosis.impossible import contradictions


def shares(*kernels: tuple[float, float]) -> KernelShares:
    """Kernels of (duration, roof) in ns."""
    duration = np.array([kernel[0] for kernel in kernels])
    zero = np.zeros(len(kernels))
    return KernelShares(
        kernel=np.arange(len(kernels)), duration_ns=duration, owned_ns=duration, fixed_ns=zero,
        page_faults_ns=zero, roof_ns=zero, below_ns=duration,
        full_roof_ns=np.array([kernel[1] for kernel in kernels]),
        regime=np.zeros(len(kernels), np.uint8),
    )  # fmt: skip


def test_work_of_a_training_step_in_the_time_of_an_evaluation() -> None:
    (sentence,) = contradictions(7.43, shares((1000.0, 900.0)), 1e-6)
    assert sentence.startswith("The MFU would be 743 %, which is impossible")


@pytest.mark.parametrize("mfu", [None, 0.0, 0.97, 1.04])
def test_a_clock_above_the_data_sheet_is_no_contradiction(mfu: float | None) -> None:
    assert contradictions(mfu, shares((1000.0, 990.0), (10.0, float("nan"))), 1e-6) == []


def test_a_roof_beaten_threefold_counts_where_it_is_a_part_of_the_step() -> None:
    # 400 ns of roofs in 100 ns: of a step of 1 us 40 %, of one of 10 us 4 %.
    beaten = shares((100.0, 400.0), (900.0, 800.0))
    assert len(contradictions(0.5, beaten, 1e-6)) == 1
    assert contradictions(0.5, beaten, 1e-5) == []
