"""Steps that need more memory than a device has."""

from __future__ import annotations

from gobrrr.devices.datasheet import all_datasheets
from gobrrr.diagnosis.schema import Diagnosis
from gobrrr.timeline.errors import InputError
from gobrrr.timeline.graph import OpGraph, peak_of
from gobrrr.timeline.quantities import percent, si

# In a diagnosis's source: the part of its memory that does not grow with the batch.
FIXED_MEMORY = "fixed_memory_bytes"
# Devices that are named as large enough.
_NAMED = 4


def fixed_memory_bytes(graph: OpGraph) -> int:
    """Most bytes at once of what a step finds or leaves: a smaller batch needs them all.

    Parameters, gradients and optimizer state; results and data that outlive it too, which is little
    beside these.
    """
    lasting = (each for each in graph.lives.values() if each.born < 0 or each.died is None)
    return peak_of(lasting, len(graph.ops))


def what_fits(found: Diagnosis) -> str:
    """How much of the batch the device has room for, as a sentence; ``""`` where not known.

    The memory beyond what lasts is taken to grow with the batch in proportion.
    """
    peak, fixed = found.counters.get("peak_memory_bytes"), found.source.get(FIXED_MEMORY)
    available = found.device.memory_bytes
    if peak is None or fixed is None or available is None:
        return ""
    if fixed >= available:
        return f"No batch fits: weights, gradients and optimizer state alone take {si(fixed, 'B')}."
    part = (available - fixed) / (peak - fixed)
    return f"About {percent(part)} of the batch would fit."


def _larger_devices(peak: float) -> str:
    """The smallest devices that the step fits into, as a sentence."""
    sheets = (each for each in all_datasheets() if each.kind != "cpu" and each.memory_bytes)
    sizes = {each.key: each.memory_bytes.value for each in sheets if each.memory_bytes}
    large = sorted((size, key) for key, size in sizes.items() if size >= peak)
    if not large:
        return "No device that gobrrr devices lists has as much."
    named = ", ".join(f"{key} ({si(size, 'B')})" for size, key in large[:_NAMED])
    return f"The smallest devices with as much: {named}."


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
    if problems and not fitting:
        needs = max(found.counters["peak_memory_bytes"] for found in diagnoses)
        largest = max(diagnoses, key=lambda found: found.device.memory_bytes or 0)
        said = problems[0]
        if len(problems) > 1:
            said = (
                f"The step needs about {si(needs, 'B')}, more than the {', '.join(sizes)}: it "
                "would run out of memory on each."
            )
        fits = what_fits(largest)
        if len(problems) > 1 and fits:
            fits = f"On {largest.source.get('device', largest.device.name)}: {fits}"
        raise InputError(" ".join(filter(None, (said, fits, _larger_devices(needs)))))
    return fitting
