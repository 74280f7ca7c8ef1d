"""Steps that were measured here, diagnosed: on the processor, or on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gobrrr.attribution.analysis import Analysis
from gobrrr.attribution.cpu.attributed import attributed_cpu
from gobrrr.attribution.cpu.run import CpuAnalysis, analyse_cpu
from gobrrr.attribution.device.lines import with_sampled_lines
from gobrrr.attribution.device.run import DeviceAnalysis, analyse_device, matching_notices
from gobrrr.attribution.recorded import as_recorded
from gobrrr.devices import ceilings_for_this_machine, load_ceilings, this_device
from gobrrr.devices.backends import gpu_in_use
from gobrrr.devices.ceilings import Ceilings
from gobrrr.diagnosis.assemble import assemble
from gobrrr.diagnosis.card import with_card
from gobrrr.diagnosis.environment import describe_environment
from gobrrr.diagnosis.fusion.sources import add_cpu_fusion, add_recorded_fusion
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.live.calibration.calibration import calibrating
from gobrrr.live.kinds.same_steps import same_steps
from gobrrr.live.measurements import Measurements
from gobrrr.live.profiles import device_trouble
from gobrrr.measure.progress import Progress
from gobrrr.timeline.errors import DefectError, GobrrrError


@dataclass
class Diagnosed:
    """A diagnosis, and the analysis behind it."""

    diagnosis: Diagnosis
    analysis: Analysis
    measured: Measurements


def diagnose_measured(
    measured: Measurements,
    source: dict[str, Any],
    ceilings: Ceilings | None,
    progress: Progress,
    *,
    refresh: bool = False,
) -> Diagnosed:
    """Diagnose what was measured.

    ``ceilings``: of the device that the steps ran on; by default this machine's, of the processor
    for the threads that PyTorch uses now; ``refresh`` measures them anew. Raises InputError if the
    steps were not profiled, DefectError if they cannot be analysed.
    """
    try:
        measured = same_steps(device_trouble.with_profile(measured))
        if measured.device_timeline is not None:
            return Diagnosed(*_on_device(measured, source, ceilings, progress, refresh), measured)
        ceilings = ceilings or load_ceilings(refresh=refresh, progress=progress)
        analysis = analyse_cpu(measured, ceilings, this_device(), calibrating(progress))
        found = _on_processor(measured, analysis, ceilings, source)
        return Diagnosed(found, analysis, measured)
    except GobrrrError:
        raise
    except Exception as error:
        raise DefectError(
            "gobrrr measured the steps but failed to analyse them. This is a bug in gobrrr, not "
            f"in the program: {type(error).__name__}: {error}"
        ) from error


def _on_processor(
    measured: Measurements, analysis: CpuAnalysis, ceilings: Ceilings, source: dict[str, Any]
) -> Diagnosis:
    import torch

    step = attributed_cpu(measured, analysis, ceilings, this_device(), torch.get_num_threads())
    diagnosis = assemble(step, source=source, environment=describe_environment())
    add_cpu_fusion(diagnosis, analysis.capture, analysis.result, ceilings)
    diagnosis.notices += device_trouble.idle_gpu_notices()
    return diagnosis


def _on_device(
    measured: Measurements,
    source: dict[str, Any],
    ceilings: Ceilings | None,
    progress: Progress,
    refresh: bool,
) -> tuple[Diagnosis, DeviceAnalysis]:
    timeline = measured.device_timeline
    assert timeline is not None
    backend = gpu_in_use(timeline.device.index if len(timeline.kernels) else None)
    trouble = device_trouble.found(measured, backend)
    name = timeline.device.name
    ceilings = ceilings or ceilings_for_this_machine(
        kind="gpu",
        device=None if backend is None else backend.identify(),
        refresh=refresh,
        progress=lambda done, total, what: progress(f"ceilings of {name}: {what}", done, total),
    )
    analysis = with_sampled_lines(analyse_device(measured, ceilings), measured)
    diagnosis = assemble(analysis.attributed, source=source, environment=describe_environment())
    add_recorded_fusion(diagnosis, as_recorded(analysis))
    diagnosis.notices += [*measured.notices, *measured.load_notices, *trouble]
    diagnosis.notices += [*with_card(diagnosis, measured.card), *matching_notices(analysis)]
    return diagnosis, analysis
