"""What operators, the profiler and pages given back cost on this machine, measured now."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gobrrr.live.calibration.fixed_cost import FixedCosts, calibrate_fixed_costs
from gobrrr.live.calibration.release_cost import measure_release_ns_per_fault
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles.profile import ProfilerCost, calibrate_profiler_cost
from gobrrr.measure.progress import Progress


class Calibration(NamedTuple):
    """Costs of one step's operators, beside what they compute and move."""

    profiler: ProfilerCost
    fixed: FixedCosts
    release_ns_per_fault: float


# Of a step's measurements, and of which of its recorded operators.
Calibrate = Callable[[Measurements, NDArray[np.bool_]], Calibration]


def calibrating(progress: Progress) -> Calibrate:
    """What calibrates, as attribution wants it."""

    def calibrate(measured: Measurements, wanted: NDArray[np.bool_]) -> Calibration:
        # What was not recorded by the profiler holds none of its cost.
        by_clock = measured.by_dispatch
        profiler = ProfilerCost(0.0, 0.0) if by_clock else calibrate_profiler_cost()
        fixed = calibrate_fixed_costs(
            measured.recorded or [], wanted, profiler, by_clock=by_clock,
            on_progress=lambda done, of: progress("calibrating", done, of),
        )  # fmt: skip
        return Calibration(profiler, fixed, measure_release_ns_per_fault())

    return calibrate
