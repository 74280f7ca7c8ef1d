"""Where measured steps are to be expected around captured ones: from the fitted half's residuals.

Two things are off independently. Steps that their host binds took a nearly constant multiple of
their ops' host time (``host_multiple``); the others lie about what is predicted by kind of mesh, as
in ``prediction_distributed`` (each model left out in turn). gobrrr states both
(``gobrrr.prediction.mesh.bands``; a test compares them with the result file).

Residuals of MPT are with the measured version of attention (``FLASH_1``): what is stated is about
the program that is captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from benchmarks.prediction_distributed.intervals import HIGH, Residual, intervals

# Steps that took more than so many times what kernels and collectives come to, their host bound.
BOUND_BEYOND = 1.25


class Step(Protocol):
    """A measured step as predicted; ``host_s``: its ops' host time, a pipeline's turns included."""

    @property
    def residual(self) -> Residual: ...

    @property
    def measured_s(self) -> float: ...

    @property
    def host_s(self) -> float: ...

    @property
    def predicted_s(self) -> float: ...


def host_multiple(fitted: Sequence[Step]) -> tuple[float, float, int] | None:
    """Host-bound steps over their ops' host time: the median, what is stated, how many steps."""
    own = [s.measured_s / s.host_s for s in fitted if s.measured_s > BOUND_BEYOND * s.predicted_s]
    if not own:
        return None
    return float(np.median(own)), float(np.percentile(own, HIGH)), len(own)


def stated(fitted_shards: Sequence[Step], fitted: Sequence[Step]) -> dict[str, Any]:
    """What gobrrr should state, of rows of the fitted half.

    Args:
        fitted_shards: of MPT, with the measured version of attention.
        fitted: of GPT.
    """
    of_host = host_multiple(fitted)
    # Those that the host would have bound at its median multiple say nothing of kernels.
    multiple = 0.0 if of_host is None else of_host[0]
    by_device = [s for s in fitted if s.predicted_s > multiple * s.host_s]
    found = intervals([s.residual for s in (*fitted_shards, *by_device)])
    return {
        "host_over_ops": None
        if of_host is None
        else {"median": round(of_host[0], 3), "stated": round(of_host[1], 3), "steps": of_host[2]},
        "whole_steps": {
            kind: {
                # What is predicted lies in its own interval.
                "low": round(min(1.0, each.low), 3),
                "high": round(max(1.0, each.high), 3),
                "spread": each.spread,
                "models": each.models,
            }
            for kind, each in found.items()
        },
    }
