"""Pages that malloc gives back and faults in again at each step: keep them."""

from __future__ import annotations

import platform

from gobrrr.causes.cause import Cause, Found, saves
from gobrrr.devices.allocator import VARIABLES
from gobrrr.diagnosis.facts import Facts, lines_of
from gobrrr.fixes.allocator import saved_of_faults_s
from gobrrr.timeline.quantities import count, percent, time_text

# Below this the thresholds are not the cause of anything.
_LEAST = 0.1


def _find(facts: Facts) -> Found | None:
    # A tensor that grows has no place among what was freed before.
    growing_s = sum(op.page_faults_s for op in facts.ops if op.grows)
    faults_s = facts.leaf_s("memory.page_faults") - growing_s
    if facts.on_gpu or faults_s < _LEAST * facts.step_s:
        return None
    if facts.environment is None or any(facts.environment.get(name) for name in VARIABLES):
        return None
    if platform.libc_ver()[0] != "glibc":
        return None
    allocation_s = facts.leaf_s("overhead.allocation")
    faulting = sorted(
        (op for op in facts.ops if op.page_faults_s > 0 and not op.grows),
        key=lambda op: -op.page_faults_s,
    )
    low_s, expected_s, _ = saved_of_faults_s(facts, faults_s)
    number = 0.0 if growing_s else facts.counters.get("page_faults")
    faults = "page faults" if not number else f"{count(number)} page faults"
    return saves(
        f"malloc returns freed memory to the system and faults it in again, with {faults} a step",
        lines_of(faulting),
        low_s, expected_s, faults_s + allocation_s,
        f"they take {time_text(faults_s)} ({percent(faults_s / facts.step_s)} of the step), and "
        f"getting and giving memory back {time_text(allocation_s)}",
    )  # fmt: skip


HEAP_TRIM = Cause(
    name="heap_trim",
    title="malloc gives memory back and faults it in again at each step (MALLOC_TRIM_THRESHOLD_)",
    words=("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "glibc.malloc.trim_threshold",
           "page faults", "jemalloc", "tcmalloc"),
    find=_find,
    remedy="GLIBC_TUNABLES=glibc.malloc.trim_threshold=4294967296:glibc.malloc.mmap_threshold="
    "4294967296 python ... (or MALLOC_TRIM_THRESHOLD_ and MALLOC_MMAP_THRESHOLD_, or jemalloc)",
    verified_by="glibc_tunables",
)  # fmt: skip
