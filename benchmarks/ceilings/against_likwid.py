"""likwid-bench and gobrrr's loops in turns, at the same working sets."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from benchmarks.ceilings.quiet import Pace

from gobrrr.devices import identify
from gobrrr.devices.cpu.identity import usable_cpus
from gobrrr.devices.cpu.memory import STREAMS, plan_levels
from gobrrr.devices.native import NativeKernels, load_native_kernels

# The test of likwid-bench that moves the same bytes in the same way; `stream` is a = b * s + c, our
# triad (likwid's `triad` has four arrays).
_TESTS = {
    "read": "load",
    "write": "store",
    "copy": "copy",
    "triad": "stream",
    "update": "update",
    "copy_nontemporal": "copy_mem",
}
# Short, so that on a shared machine some trials have all cores for themselves.
_TRIAL_S = 0.012
_TURNS = 2


@dataclass(frozen=True)
class Case:
    """One quantity measured by both; ``ours`` takes about the seconds it is given."""

    name: str
    test: str
    bytes: int
    unit: str
    ours: Callable[[float], float | None]


def version() -> str | None:
    """What ``likwid-bench -v`` says; ``None`` without it."""
    if shutil.which("likwid-bench") is None:
        return None
    said = subprocess.run(["likwid-bench", "-v"], capture_output=True, text=True).stdout
    found = re.search(r"Version ([\d.]+)", said)
    return found.group(1) if found else None


@cache
def _native() -> NativeKernels:
    return load_native_kernels(usable_cpus())


@cache
def _cases() -> tuple[Case, ...]:
    native, threads, device = _native(), torch.get_num_threads(), identify("cpu")
    wide = "avx512" if "avx512f" in device.isa else "avx"
    cases = [
        Case(
            f"vector.{dtype}",
            f"peakflops{infix}_{wide}_fma",
            16384 * threads,
            "MFlops/s",
            lambda seconds, dtype=dtype: native.arithmetic(
                dtype, "multiply_add", threads=threads, seconds=seconds / 6, trials=6
            ),
        )
        for dtype, infix in (("float32", "_sp"), ("float64", ""))
    ]
    for level in plan_levels(device, threads, usable_cpus()):
        if level.name == "l1":
            continue
        size = level.sets_bytes[0]
        for kind in STREAMS:
            # Older likwid versions fuse the triad's arithmetic only in tests of this name.
            suffix = f"{wide}_fma" if kind == "triad" else wide
            cases.append(
                Case(
                    f"memory.{level.name}.{kind}",
                    f"{_TESTS[kind]}_{suffix}",
                    size,
                    "MByte/s",
                    lambda seconds, kind=kind, size=size: native.stream(
                        kind, size // threads, threads=threads, seconds=seconds / 4, trials=4
                    ),
                )
            )
    return tuple(cases)


def one_round(pace: Pace) -> dict[str, dict[str, list[float]]]:
    """Rates of both by quantity, in turns: ours, likwid's, ours, likwid's."""
    round_: dict[str, dict[str, list[float]]] = {}
    for case in pace.begin(_cases()):
        ours: list[float] = []
        likwid: list[float] = []
        for _ in range(_TURNS):
            rate = case.ours(_TRIAL_S)
            if rate is None:
                break
            ours.append(rate)
            likwid.append(_likwid(case, max(rate, *likwid, 0.0)))
        if ours:
            round_[case.name] = {"ours": ours, "likwid": likwid}
    return round_


def _likwid(case: Case, rate_guess: float) -> float:
    threads = torch.get_num_threads()
    # A pass moves about the bytes of the set; a pass of peakflops does 16 multiply-adds for each
    # element loaded, 8 FLOPs for each byte.
    passes = max(2, int(_TRIAL_S * rate_guess / case.bytes))
    if case.unit == "MFlops/s":
        passes = max(2, passes // 8)
    group = f"N:{case.bytes // 1000}kB:{threads}"
    done = subprocess.run(
        ["likwid-bench", "-t", case.test, "-w", group, "-i", str(passes)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(rf"^{case.unit}:\s+([\d.]+)", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    return float(found.group(1)) * 1e6


def summarise_rounds(
    rounds: list[dict[str, dict[str, list[float]]]],
) -> dict[str, dict[str, float]]:
    """Best of each over all rounds, and their ratio: both are after what the machine can do."""
    summary = {}
    for name in sorted({name for measured in rounds for name in measured}):
        best = {
            side: max(max(measured[name][side]) for measured in rounds if name in measured)
            for side in ("ours", "likwid")
        }
        summary[name] = {**best, "ratio": best["ours"] / best["likwid"]}
    return summary
