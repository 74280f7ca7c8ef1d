"""Ops whose kernels wait for each other, on GPUs: recurrent layers and factorisations."""

from __future__ import annotations

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.factorisations import time_of_factorisation
from gobrrr.prediction.kernels.kernels import Kernels
from gobrrr.prediction.kernels.sequences import is_sequence, time_of_sequence
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work


def time_of_chain(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, rate: float
) -> Kernels | None:
    """Time steps, or columns, that wait for each other in a GPU's library; ``None`` for others."""
    if device.kind not in ("cuda", "hip"):
        return None
    try:
        if is_sequence(call):
            return time_of_sequence(call, work, device, c, rate)
        return time_of_factorisation(call, work, device, c)
    except (IndexError, ValueError, TypeError):
        # A trace that leaves arguments out.
        return None
