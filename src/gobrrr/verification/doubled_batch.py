"""The batch test: the workload and the same on twice the data, measured in turns."""

from __future__ import annotations

from statistics import median

from gobrrr.attribution.analysis import Analysis
from gobrrr.attribution.cpu.run import CpuAnalysis, analyse_cpu
from gobrrr.attribution.device.run import analyse_device
from gobrrr.devices import load_ceilings, this_device
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.batch_growth import compare_growth, same_ops, side_of
from gobrrr.diagnosis.schema import BatchDoubling
from gobrrr.live.calibration.calibration import calibrating
from gobrrr.live.function import measure_step
from gobrrr.live.measurements import Measurements, Plan
from gobrrr.live.profiles.device_profile import device_in_use
from gobrrr.measure import time_in_turns
from gobrrr.measure.progress import Progress
from gobrrr.timeline.errors import GobrrrError
from gobrrr.timeline.quantities import time_text
from gobrrr.timeline.workload import Workload, modules_of

# Seconds that the test may take where nobody asked for it.
BUDGET_S = 20.0


def double_batch(
    work: Workload,
    analysis: Analysis,
    measured: Measurements,
    ceilings: Ceilings | None,
    progress: Progress,
    *,
    always: bool = False,
) -> BatchDoubling | str:
    """Run the workload on twice the data; returns the comparison, or a sentence why there is none.

    ``analysis`` and ``measured`` are those of the workload as it is. A test that takes longer
    than ``BUDGET_S`` is not run, unless ``always``.
    """
    try:
        doubled = work.with_batch_repeated(2)
    except GobrrrError as error:
        return f"No batch test: {error}."
    # Some seven steps of twice the data to measure, then five of each to compare.
    takes_s = median(measured.all_plain_ns) * 1e-9 * (7 * 2 + 5 * 3)
    if not always and takes_s > BUDGET_S:
        return (
            f"No batch test: on steps this long it takes about {time_text(takes_s)}. "
            "batch_test=True (--batch-test) runs it."
        )

    def show(phase: str, done: int, wanted: int) -> None:
        progress(f"batch test: {phase}", done, wanted)

    try:
        there = measure_step(doubled.step, Plan(), modules=modules_of(work), progress=show)
        grown = _analysed_like(analysis, there, ceilings, show)
        # The two are timed again, alternately: the profiled runs were minutes apart.
        device = device_in_use()
        own_clock = None if device is None else device.lengths_of
        once_ns, twice_ns = time_in_turns(work.step, doubled.step, lengths_of=own_clock)
    except GobrrrError as error:
        return f"No batch test: on twice the data {error}."
    single, twice = side_of(analysis), side_of(grown)
    if not same_ops(single, twice):
        return "No batch test: on twice the data other ops ran, so that none can be compared."
    return compare_growth(single, twice, once_ns, twice_ns)


def _analysed_like(
    other: Analysis, measured: Measurements, ceilings: Ceilings | None, progress: Progress
) -> Analysis:
    """Other steps of the program of ``other``, on the device that it ran on.

    ``ceilings``: of the processor, where they are known.
    """
    if isinstance(other, CpuAnalysis):
        known = ceilings or load_ceilings(refresh=False, progress=progress)
        return analyse_cpu(measured, known, this_device(), calibrating(progress))
    return analyse_device(measured, other.attributed.ceilings)
