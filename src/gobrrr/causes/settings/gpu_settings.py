"""Calls and settings that cost on a GPU: memory handed back, algorithms searched for anew."""

from __future__ import annotations

from gobrrr.causes.cause import Cause, Found, saves_of_wall
from gobrrr.causes.noted import most_saved, noted, text_of
from gobrrr.diagnosis.facts import Facts, lines_of
from gobrrr.observe.program_facts import NoteFact
from gobrrr.timeline.quantities import count, percent, time_text


def _mean(times_s: tuple[float, ...]) -> float:
    # Not that of ``statistics``, which a trace would load for nothing else.
    return sum(times_s) / len(times_s)


def _empties(note: NoteFact) -> bool:
    return note.callee.endswith(".empty_cache") or "empty_cache(" in text_of(note.line)


def _empty_cache(facts: Facts) -> Found | None:
    found = noted(facts, _empties) if facts.on_gpu else None
    if found is None:
        return None
    most = most_saved(facts)
    return saves_of_wall(
        f"empty_cache() was running at {count(found.count)} of the moments that were looked at: "
        f"{percent(found.share)} of the wall time; what follows allocates the same memory again, "
        "and waits for the device",
        found.lines, found.low, min(found.share, most), min(found.high, most),
    )  # fmt: skip


def _searches(facts: Facts) -> Found | None:
    program = facts.program
    if program is None or not facts.on_gpu or not program.flags.get("cudnn_benchmark"):
        return None
    found = [op for op in facts.ops if "convolution" in op.name and op.varies]
    slower = facts.slow_s and _mean(facts.slow_s) > 2 * facts.step_s
    if not found or not slower:
        return None
    return Found(
        f"torch.backends.cudnn.benchmark is on and {count(len(found))} convolutions have other "
        f"sizes from step to step: cuDNN tries all its algorithms for each size anew; "
        f"{count(len(facts.slow_s))} steps took {time_text(_mean(facts.slow_s))} instead of "
        f"{time_text(facts.step_s)}",
        lines_of(found),
    )  # fmt: skip


EMPTY_CACHE = Cause(
    name="empty_cache",
    title="empty_cache() is called in the loop (torch.cuda.empty_cache)",
    words=("torch.cuda.empty_cache", "empty_cache slow", "cudaFree", "cudaMalloc each step"),
    find=_empty_cache,
    remedy="leave torch.cuda.empty_cache() out of the loop; against fragmentation "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
)
CUDNN_BENCHMARK = Cause(
    name="cudnn_benchmark",
    title="cudnn.benchmark searches algorithms anew for each input size",
    words=("torch.backends.cudnn.benchmark", "cudnn benchmark varying input size",
           "cudnn.benchmark slow"),
    find=_searches,
    remedy="torch.backends.cudnn.benchmark = False, or inputs padded to a few sizes",
)  # fmt: skip
