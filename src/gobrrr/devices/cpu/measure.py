"""Measure a CPU's ceilings: every probe several times, spread over the whole run, best of each."""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gobrrr.devices.ceilings import BUSY, Ceiling, Ceilings, MemoryLevel, Progress
from gobrrr.devices.cpu.compute import (
    GEMM_DTYPES,
    GemmSweep,
    rows_computed_alike,
    torch_exponentials,
    vector_from_gemm,
    vector_rates,
)
from gobrrr.devices.cpu.identity import usable_cpus
from gobrrr.devices.cpu.memory import (
    LevelPlan,
    build_levels,
    effective_capacity,
    native_streams,
    plan_levels,
    torch_streams,
)
from gobrrr.devices.cpu.operators import operator_rates
from gobrrr.devices.host_costs import host_costs
from gobrrr.devices.identity import DeviceIdentity
from gobrrr.devices.native import NativeKernels, NoNativeKernelsError, load_native_kernels
from gobrrr.timeline.quantities import binary_size, percent

# What slows a machine down (other tenants, other programs) comes in stretches of seconds: three
# passes over all probes see more of its quiet moments than three times as long at one probe.
PASSES = 3
_GEMM_BUDGET_S = 0.7
# On a machine so busy that the first pass took this long, the others are left out.
_LIMIT_S = 45.0
# A rate that differs by more between passes was disturbed.
_STEADY = 0.15

_ONE_THREAD = ".1thread"

# Costs are the best where they are the least.
_SMALLEST_IS_BEST = ("s",)


@dataclass(frozen=True, slots=True)
class _Probe:
    """Something to measure, and what to call it while it runs."""

    what: str
    run: Callable[[], Iterable[Ceiling]]
    passes: int = PASSES


def measure_cpu(device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
    """Measure everything; takes about 35 seconds on two cores, little more on a busy machine.

    PyTorch's thread count is set to ``threads`` meanwhile and put back.

    Raises:
        ImportError: PyTorch is not installed.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            return _measure(torch, device, threads, progress)
    finally:
        torch.set_num_threads(before)


def _measure(torch: Any, device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
    cpus = usable_cpus()
    plans = plan_levels(device, threads, cpus)
    notices: list[str] = []
    progress(0, 1, "compiling the C++ loops")
    native: NativeKernels | None = None
    try:
        native = load_native_kernels(cpus)
    except NoNativeKernelsError as error:
        notices.append(
            f"{error}: vector rates are measured with GEMMs, bandwidths with PyTorch's operators"
        )
    probes = list(_probes(torch, native, device, plans, threads, cpus))
    total = sum(probe.passes for probe in probes) + 1
    rows: dict[str, Ceiling] = {}
    seen: dict[str, list[float]] = {}
    done, end = 0, time.monotonic() + _LIMIT_S
    for turn in range(PASSES):
        for probe in probes:
            if turn >= probe.passes or (turn and time.monotonic() > end):
                continue
            progress(done, total, probe.what)
            for row in probe.run():
                seen.setdefault(row.name, []).append(row.value)
                _keep_best(rows, row)
            done += 1
    progress(done, total, "cache sizes")
    levels = _levels(native, plans, rows, threads)
    if native is None and not _has_matrix_unit():
        rows.update((row.name, row) for row in vector_from_gemm(rows))
    rows.update((row.name, row) for row in rows_computed_alike(rows))
    if threads == 1:
        rows.update((row.name, row) for row in _rows_of_one_thread(rows))
    notices += _disturbed(seen)
    if len(plans) == 1:
        notices.append("the system reports no caches: every op is held against the DRAM bandwidth")
    progress(total, total, "done")
    return Ceilings(device.name, dict(sorted(rows.items())), levels, tuple(notices))


def _probes(
    torch: Any,
    native: NativeKernels | None,
    device: DeviceIdentity,
    plans: list[LevelPlan],
    threads: int,
    cpus: list[int],
) -> Iterator[_Probe]:
    if native is not None:
        yield _Probe("vector units", partial(vector_rates, native, threads))
    yield _Probe("torch.exp", partial(torch_exponentials, torch, threads))
    for dtype in GEMM_DTYPES:
        sweep = GemmSweep(torch, dtype)
        yield _Probe(f"{dtype} matrix multiply", partial(_run_sweep, sweep))
    for plan in plans:
        if native is not None:
            yield _Probe(f"{plan.name} bandwidth", partial(native_streams, native, plan, threads))
        if native is None or plan.name not in ("l1", "l2"):
            yield _Probe(
                f"{plan.name} bandwidth in PyTorch",
                partial(torch_streams, torch, plan),
            )
    if threads > 1 and native is not None:
        for plan in plan_levels(device, 1, cpus):
            yield _Probe(
                f"{plan.name} bandwidth of one thread",
                partial(native_streams, native, plan, 1, _ONE_THREAD),
            )
    yield _Probe("host costs", partial(host_costs, torch, threads))
    yield _Probe("PyTorch's operators", partial(operator_rates, torch, threads))


def _rows_of_one_thread(rows: dict[str, Ceiling]) -> list[Ceiling]:
    """With one thread in all, its rows under both names."""
    return [
        replace(row, name=name + _ONE_THREAD)
        for name, row in rows.items()
        if name.startswith("memory.") and not name.endswith(".capacity")
    ]


def _run_sweep(sweep: GemmSweep) -> list[Ceiling]:
    row = sweep.run(_GEMM_BUDGET_S)
    return [] if row is None else [row]


def _keep_best(rows: dict[str, Ceiling], row: Ceiling) -> None:
    old = rows.get(row.name)
    better = old is None or (
        row.value < old.value if row.unit in _SMALLEST_IS_BEST else row.value > old.value
    )
    if better and row.value > 0:
        rows[row.name] = row


def _levels(
    native: NativeKernels | None,
    plans: list[LevelPlan],
    rows: dict[str, Ceiling],
    threads: int,
) -> tuple[MemoryLevel, ...]:
    """Levels with their capacities, which become rows."""
    capacities: dict[str, int] = {}
    for index, plan in enumerate(plans):
        if plan.capacity_bytes is None:
            continue
        size, how = plan.capacity_bytes, "as the system reports it"
        inner, outer = (rows.get(f"memory.{other.name}.read") for other in (plan, plans[index + 1]))
        if native is not None and inner is not None and outer is not None and plan.name != "l1":
            held = effective_capacity(native, plan, inner.value, outer.value, threads)
            if held is not None and held != size:
                how = (
                    "the most that is read at this level's rate; the system reports "
                    f"{binary_size(size)}"
                )
                size = held
        capacities[plan.name] = size
        name = f"memory.{plan.name}.capacity"
        rows[name] = Ceiling(name, float(size), "B", "measured", how)
    return build_levels(plans, rows, capacities)


_STEADY_RATES = {
    "vector.float32": "the rate of float32 vector arithmetic",
    "matrix.float32": "the rate of float32 matrix products",
    "memory.dram.read": "the bandwidth of reading DRAM",
}


def _disturbed(seen: dict[str, list[float]]) -> Iterator[str]:
    """A notice if quantities that only depend on this machine varied between passes."""
    for name, words in _STEADY_RATES.items():
        values = seen.get(name, [])
        if len(values) > 1 and min(values) < (1 - _STEADY) * max(values):
            yield (
                f"{BUSY} ({words} varied by "
                f"{percent(1 - min(values) / max(values))}): measure again when it is idle, with "
                "gobrrr ceilings --refresh"
            )
            return


def _has_matrix_unit() -> bool:
    """Whether float32 GEMMs may run on something else than the vector units."""
    return sys.platform == "darwin" and platform.machine() == "arm64"
