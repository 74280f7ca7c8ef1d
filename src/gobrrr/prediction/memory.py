"""Steps that need more memory than a device has."""

from __future__ import annotations

from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.quantities import si


def memory_notice(device: str, peak: int | None, available: int | None) -> str | None:
    """A sentence if the step needs more memory than the device has."""
    if peak is None or available is None or peak <= available:
        return None
    return (
        f"The step needs about {si(peak, 'B')}, more than the {si(available, 'B')} of "
        f"{device}: it would run out of memory."
    )


def refuse_too_large(*diagnoses: Diagnosis) -> list[Diagnosis]:
    """Those of the diagnoses whose step fits into the device's memory.

    Raises:
        InputError: none of them fits.
    """
    fitting, problems, sizes = [], [], []
    for found in diagnoses:
        peak = found.counters.get("peak_memory_bytes")
        key = str(found.source.get("device", found.device.name))
        problem = memory_notice(key, None if peak is None else int(peak), found.device.memory_bytes)
        if problem is None:
            fitting.append(found)
        else:
            problems.append(problem)
            sizes.append(f"{si(found.device.memory_bytes, 'B')} of {key}")
    if len(problems) == 1 and not fitting:
        raise InputError(problems[0])
    if problems and not fitting:
        needs = max(found.counters["peak_memory_bytes"] for found in diagnoses)
        raise InputError(
            f"The step needs about {si(needs, 'B')}, more than the {', '.join(sizes)}: it "
            "would run out of memory on each."
        )
    return fitting
