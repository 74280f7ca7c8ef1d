"""Allocator settings that stop a CPU program from page-faulting its fresh outputs in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from gobrrr.devices.allocator import ALWAYS_MAPPED_BYTES, VARIABLES
from gobrrr.diagnosis.facts import Facts
from gobrrr.fixes.fix import (
    ALLOCATOR,
    MEMORY,
    SAME_OPS,
    Considered,
    Fix,
    RuledOut,
    prospect_or_not,
)
from gobrrr.fixes.spread import ALLOCATORS
from gobrrr.timeline.quantities import count, time_text

_LEAVES = ("memory.page_faults", "overhead.allocation")
# Blocks of any size come from the heap, and the heap is never given back: a buffer that was
# faulted in once is used again. (https://sourceware.org/glibc/manual/latest/html_node/
# Memory-Allocation-Tunables.html)
_TUNABLES = {
    "GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296"
    ":glibc.malloc.trim_threshold=4294967296:glibc.malloc.top_pad=67108864"
}
_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
            "/usr/local/lib")  # fmt: skip
# Share of the page-fault time that goes, measured with x * 2 on fresh outputs of 64 MiB (torch
# 2.13, glibc 2.36, Zen 4): 32.3 ms per call before, 5.2 ms after, with out= 5.1 ms.
_SAVED = (0.5, 0.85, 1.0)
# Blocks that are not always mapped anew come from glibc's heap again once one was freed, and fault
# only where its top was given back at every step: of the faults of a small network's training
# (9,200 a step, 2.1 us each) 0.95 of the cost was saved, of those of 8 MiB buffers' chain 0.33, and
# another time the same chain became 0.12 slower.
_SAVED_OF_SMALLER = (-0.2, 0.7, 1.0)
# Pages of one block freed and taken again in the same step fault once: what the kernel pays to
# zero and unmap them is not in the fault's own cost.
_AROUND = 0.3


def _consider(environment: Mapping[str, str], missing: str, facts: Facts) -> Considered:
    if facts.on_gpu:
        return RuledOut("on a GPU torch's caching allocator provides fresh outputs")
    if sys.platform != "linux":
        return RuledOut("it applies to glibc only")
    if not environment:
        return RuledOut(missing)
    if any((facts.environment or {}).get(name) for name in VARIABLES):
        return RuledOut("the environment sets an allocator already")
    faults = facts.counters.get("page_faults", 0.0)
    # The leaf holds what fits into the kernels of fresh outputs; each fault has its price wherever.
    faults_s = max(facts.leaf_s("memory.page_faults"), faults * (facts.rate("page_fault") or 0.0))
    low, expected, high = saved_of_faults_s(facts, faults_s)
    because = (
        f"{count(faults)} page faults take {time_text(faults_s)} per step; "
        "memory that the allocator keeps is faulted in only once"
    )
    high = high * (1 + _AROUND) + facts.leaf_s("overhead.allocation")
    found = prospect_or_not(facts, low, expected, high, because)
    if isinstance(found, RuledOut) or facts.can_restart:
        return found
    return RuledOut(
        f"has to be set when the process starts ({because}): "
        + " ".join(f"{name}={value}" for name, value in environment.items())
    )


def saved_of_faults_s(facts: Facts, faults_s: float) -> tuple[float, float, float]:
    """What a heap that is never given back saves of page faults: low, expected, high, seconds."""
    large = sum(op.page_faults_s for op in facts.ops if op.fresh_bytes >= ALWAYS_MAPPED_BYTES)
    every = sum(op.page_faults_s for op in facts.ops)
    large_s = faults_s * large / every if every > 0 else faults_s
    low, expected, high = (
        share * large_s + less * (faults_s - large_s)
        for share, less in zip(_SAVED, _SAVED_OF_SMALLER)
    )
    return low, expected, high


def find_library(name: str) -> str | None:
    """The path of an installed allocator, by the start of its file name; ``None`` if not found."""
    for folder in _FOLDERS:
        for path in sorted(Path(folder).glob(f"{name}.so*")):
            return str(path)
    return None


def _tunables(facts: Facts) -> Considered:
    return _consider(_TUNABLES, "", facts)


def _preloaded(library: str, package: str) -> Mapping[str, str]:
    # A path like any other in LD_PRELOAD: the loader finds it, or says that it did not.
    return {"LD_PRELOAD": f"{library}.so.2" if package == "libjemalloc2" else f"{library}.so.4"}


def _consider_preloaded(library: str, package: str, facts: Facts) -> Considered:
    environment = _preloaded(library, package) if find_library(library) else {}
    return _consider(environment, f"{library} is not installed (Debian: {package})", facts)


def _preload_fix(name: str, library: str, package: str) -> Fix:
    return Fix(
        name=name,
        title=f"{name}: freed memory stays in the process",
        leaves=_LEAVES,
        may_change=(MEMORY,),
        consider=partial(_consider_preloaded, library, package),
        snippet=" ".join(f"{k}={v}" for k, v in _preloaded(library, package).items())
        + " python ...",
        environment=_preloaded(library, package),
        effect=SAME_OPS,
        claims=(ALLOCATOR,),
        judged_with=ALLOCATORS,
    )


GLIBC_TUNABLES = Fix(
    name="glibc_tunables",
    title="malloc keeps freed memory (GLIBC_TUNABLES)",
    leaves=_LEAVES,
    may_change=(MEMORY,),
    consider=_tunables,
    snippet=" ".join(f"{k}={v}" for k, v in _TUNABLES.items()) + " python ...",
    environment=_TUNABLES,
    effect=SAME_OPS,
    claims=(ALLOCATOR,),
    judged_with=ALLOCATORS,
)
JEMALLOC = _preload_fix("jemalloc", "libjemalloc", "libjemalloc2")
TCMALLOC = _preload_fix("tcmalloc", "libtcmalloc_minimal", "libtcmalloc-minimal4")
