"""An independent check: do the device's own counters agree with bytes, FLOPs and roofs?

Of four programs one step, kernel by kernel in the order in which they ran: gobrrr's work and roof
of each, and what Nsight Compute counts of the same (bytes of DRAM, instructions and cycles of the
tensor pipes, at the clock as it is). Beside the shares of the whole step stand NVML's GPM counters
while it repeats. Refuted by kernels that move fewer bytes than told or many times more, by tensor
pipes that are busy where memory is told as the limit, and by shares that GPM contradicts.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.gpu.processes import SCRIPTS, Budget, Child, last_lines, skipped
from benchmarks.gpu.scripts.counted_steps import PROGRAMS
from benchmarks.gpu.setting import Setting

from gobrrr.attribution.analysis import Analysis
from gobrrr.attribution.device.run import DeviceAnalysis
from gobrrr.live.measurements import Plan
from gobrrr.pipeline.live import diagnose_work

LIMIT_S = 100
SCRIPT = SCRIPTS / "counted_steps.py"
# Few, so that each kernel is replayed few times; those that the device's chip does not have are
# left out.
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__cycles_elapsed.max",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
)
# All that every chip since Volta has, for where nobody says which ones there are.
SURE = METRICS[:3]
GPM_SAMPLES, GPM_WINDOW_S, GPM_S = 5, 0.3, 8.0
GPM_METRICS = {
    "graphics": 1, "sm": 2, "sm_occupancy": 3, "integer": 4, "any_tensor": 5, "hmma_tensor": 7,
    "imma_tensor": 9, "dram_bandwidth": 10, "fp64": 11, "fp32": 12, "fp16": 13,
}  # fmt: skip


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """By program ``gobrrr`` (kernels of one step, leaves), ``gpm`` and ``ncu`` (kernels)."""
    import torch

    budget = Budget(LIMIT_S, setting)
    programs: dict[str, dict[str, Any]] = {name: {} for name in PROGRAMS}
    found: dict[str, Any] = {"programs": programs}
    with tempfile.TemporaryDirectory(prefix="n") as made:
        ncu, metrics = _counting(setting, found)
        waiting = _counted(ncu, metrics, Path(made), setting)
        steps = {}
        for name, make in PROGRAMS.items():
            torch.manual_seed(0)
            steps[name] = step = make(setting.device, setting.small)
            programs[name]["gobrrr"] = _or_error(partial(_diagnosed, step, name, setting))
            save(found)
        # What is left is for the counters of the whole step, which need nobody's permission.
        waiting.go()
        ended = waiting.end(max(budget.left_s - GPM_S, 1.0))
        file = waiting.folder / "counted.csv"
        found["ncu"] = {
            "exit": ended["exit"], "gave_up": ended["gave_up"],
            "last_lines": ended["last_lines"][-12:],
            "log": last_lines(file, waiting.folder)[-12:],
        }  # fmt: skip
        for name, rows in zip(PROGRAMS, by_program(file)):
            programs[name]["ncu"] = rows
        save(found)
        for name, step in steps.items():
            programs[name]["gpm"] = skipped(setting) or _or_error(partial(_gpm, step))
            save(found)
    return found


def _or_error(piece: Callable[[], Any]) -> Any:
    try:
        return piece()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:600]}


def _counting(setting: Setting, found: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """Nsight Compute, and which of the metrics the chip has."""
    if (without := skipped(setting)) is not None:
        found["metrics"] = without
        return None, ()
    tools = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"))
    tools += sorted(Path("/usr/local").glob("cuda*/bin/ncu"))
    ncu = shutil.which("ncu") or (str(tools[-1]) if tools else None)
    if ncu is None:
        found["metrics"] = {"skipped": "no ncu"}
        return None, ()
    names: set[str] = set()
    for chips in (["--chips", "gh100"], []):
        try:
            said = subprocess.run(
                [ncu, "--query-metrics", *chips], capture_output=True, text=True, timeout=8
            ).stdout
        except subprocess.TimeoutExpired:
            continue
        names = set(re.findall(r"^([a-z]+__\w+)", said, re.MULTILINE))
        if names:
            break
    chosen = tuple(metric for metric in METRICS if metric.partition(".")[0] in names) or SURE
    found["metrics"] = {
        "known": len(names), "chosen": chosen,
        "of_tensor_pipes": sorted(n for n in names if n.startswith("sm__") and "tensor" in n),
    }  # fmt: skip
    return ncu, chosen


def _counted(ncu: str | None, metrics: tuple[str, ...], made: Path, setting: Setting) -> Child:
    """A process that is ready to run the programs; without ``ncu`` nothing counts it."""
    folder = made / "counted"
    count = () if ncu is None else (
        ncu, "--profile-from-start", "off", "--clock-control", "none", "--cache-control", "none",
        "--csv", "--page", "raw",
        "--print-units", "base", "--log-file", str(folder / "counted.csv"), "--metrics",
        ",".join(metrics),
    )  # fmt: skip
    return Child((*count, sys.executable, str(SCRIPT), *PROGRAMS), folder, setting, gated=True)


def by_program(file: Path) -> list[list[dict[str, Any]]]:
    """Kernels of each program that was counted: a kernel that does nothing ends each."""
    found: list[list[dict[str, Any]]] = [[]]
    for row in counted_rows(file.read_text()) if file.is_file() else ():
        if "spin_kernel" in row["name"]:
            found.append([])
        else:
            found[-1].append(row)
    return found if found[-1] else found[:-1]


def counted_rows(log: str) -> list[dict[str, Any]]:
    """Kernels in their order, out of what Nsight Compute logs as CSV (``None``: not counted)."""
    lines = [line for line in log.splitlines() if line.startswith('"')]
    rows = []
    for row in csv.DictReader(lines):
        # The line below the names holds the units.
        if row.get("ID"):
            rows.append({
                "name": row["Kernel Name"], "grid": row.get("Grid Size"),
                "block": row.get("Block Size"), "stream": row.get("Stream"),
                **{key: _number(value) for key, value in row.items() if "__" in (key or "")},
            })  # fmt: skip
    return rows


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return value if np.isfinite(value) else None


def _diagnosed(step: Callable[[], Any], name: str, setting: Setting) -> dict[str, Any]:
    plan = Plan(None, setting.steps if setting.small else None)
    done = diagnose_work(step, plan, None, name, lambda *_: None)
    said = done.diagnosis
    return {
        "verdict": said.verdict, "notices": said.notices, "step_s": said.step_s,
        "samples_s": said.step.samples_s, "host_scale": said.step.host_scale,
        "kernel_scale": said.step.kernel_scale, "leaves": said.leaves, "counters": said.counters,
        "kernels": skipped(setting) or kernel_rows(done.analysis),
    }  # fmt: skip


def kernel_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The kernels of the profiled step of median length, in their order, with work and roof."""
    assert isinstance(analysis, DeviceAnalysis)
    timeline, work = analysis.capture.timeline, analysis.found.work
    kernels, host = timeline.kernels, timeline.host
    low, high = timeline.steps[timeline.median_step]
    rows = np.flatnonzero((kernels.start_ns >= low) & (kernels.start_ns < high))
    found = []
    for row in rows[np.argsort(kernels.start_ns[rows], kind="stable")].tolist():
        part, roof, op = work.works[row], work.roofs[row], int(work.op[row])
        found.append({
            "name": timeline.names[kernels.name[row]], "kind": int(kernels.kind[row]),
            "stream": int(kernels.stream[row]),
            "duration_ns": int(kernels.end_ns[row] - kernels.start_ns[row]),
            "op": timeline.names[host.name[op]] if op >= 0 else None,
            "share_of_op": float(work.share[row]),
            "work": None if part is None else {
                key: value for key, value in asdict(part).items() if key != "op_class"
            },
            "roof": None if roof is None else asdict(roof),
        })  # fmt: skip
    return found


def _gpm(step: Callable[[], Any]) -> dict[str, Any]:
    """NVML's GPM over a few windows in which the step repeats; percentages of the window."""
    if importlib.util.find_spec("pynvml") is None:
        return {"skipped": "needs nvidia-ml-py"}
    import pynvml
    import torch

    pynvml.nvmlInit()
    identity = getattr(torch.cuda.get_device_properties(0), "uuid", None)
    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity}")
    except pynvml.NVMLError:
        device = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
    supported = pynvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice
    if not supported:
        return {"skipped": "the device has no GPM"}
    samples, counts = [], []
    try:
        for _ in range(GPM_SAMPLES):
            samples.append(pynvml.nvmlGpmSampleAlloc())
        step()
        torch.cuda.synchronize()
        times, done = [], 0
        for sample in samples:
            pynvml.nvmlGpmSampleGet(device, sample)
            times.append(time.perf_counter())
            counts.append(done)
            while time.perf_counter() - times[-1] < GPM_WINDOW_S:
                # Four at a time keep the device busy without running far ahead.
                for _ in range(4):
                    step()
                torch.cuda.synchronize()
                done += 4
        windows = []
        for i in range(1, len(samples)):
            asked = pynvml.c_nvmlGpmMetricsGet_t()
            asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
            asked.numMetrics = len(GPM_METRICS)
            asked.sample1, asked.sample2 = samples[i - 1], samples[i]
            for place, number in enumerate(GPM_METRICS.values()):
                asked.metrics[place].metricId = number
            pynvml.nvmlGpmMetricsGet(asked)
            windows.append({
                "seconds": times[i] - times[i - 1], "steps": counts[i] - counts[i - 1],
                **{
                    name: _percent(asked.metrics[place]) for place, name in enumerate(GPM_METRICS)
                },
            })  # fmt: skip
    finally:
        for sample in samples:
            pynvml.nvmlGpmSampleFree(sample)
        pynvml.nvmlShutdown()
    return {"windows": windows}


def _percent(metric: Any) -> float | None:
    """``None`` where the driver does not count it."""
    return float(metric.value) if metric.nvmlReturn == 0 and np.isfinite(metric.value) else None
