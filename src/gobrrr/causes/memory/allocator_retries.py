"""An allocator that finds no room, or no block that fits: it asks the driver again in each step."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.causes.settings.gpu_settings import EMPTY_CACHE
from gobrrr.devices.backend import ALLOCATOR_RETRIES, DRIVER_ALLOCATIONS
from gobrrr.diagnosis.facts import Facts
from gobrrr.timeline.quantities import count, percent, time_text

# Fewer calls of the driver than this in a step are those of a cache that still grows.
_FEWEST = 0.5
_SEGMENTS = "expandable_segments:True"
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def _find(facts: Facts) -> Found | None:
    retries = facts.counters.get(ALLOCATOR_RETRIES, 0.0)
    calls = facts.counters.get(DRIVER_ALLOCATIONS, 0.0)
    if not facts.on_gpu or (retries <= 0 and calls < _FEWEST):
        return None
    if retries <= 0 and EMPTY_CACHE.find(facts) is not None:
        # What hands the memory back is known.
        return None
    held_s = facts.leaf_s("overhead.allocation")
    lines = [gap for gap in facts.idle if gap.cause == "allocation" and gap.source]
    lines.sort(key=lambda gap: -gap.time_s)
    sources = tuple(dict.fromkeys(gap.source for gap in lines if gap.source))[:3]
    evidence = f"the allocator asks the driver for memory {count(calls)} times in a step"
    if retries > 0:
        evidence = (
            f"no cached block fits and the device has no room {count(retries)} times in a step: "
            "the allocator waits for the device, gives its cached blocks back and asks the driver "
            f"again ({count(calls)} calls)"
        )
    evidence += f", for which the device waits {time_text(held_s)}"
    evidence += f" ({percent(held_s / facts.step_s)} of the step)" if facts.step_s > 0 else ""
    environment = {} if facts.program is None else facts.program.environment
    if any(_SEGMENTS in environment.get(name, "") for name in _VARIABLES):
        evidence += f"; {_SEGMENTS} is set already, so less memory is what helps"
    if held_s <= 0:
        # It happened in timed steps, and in none that was profiled.
        return Found(evidence, sources)
    return saves(
        evidence, sources, 0.5 * held_s, 0.85 * held_s,
        held_s + facts.leaf_s("overhead.synchronisation"),
    )  # fmt: skip


ALLOCATOR_RETRIES_CAUSE = Cause(
    name="allocator_retries",
    title="the allocator asks the driver for memory in each step (num_alloc_retries, cudaMalloc)",
    words=("num_alloc_retries", "cudaMalloc retries", "cudaMalloc each step", "cudaFree",
           "memory fragmentation", "expandable_segments"),
    find=_find,
    remedy="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python ... (PYTORCH_ALLOC_CONF from "
    "PyTorch 2.9 on), or less memory: a smaller batch, activation checkpointing, sizes that stay "
    "the same from step to step",
)  # fmt: skip
