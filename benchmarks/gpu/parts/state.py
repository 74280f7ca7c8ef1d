"""What card and machine this is, what state they are in, and what this user may ask of them.

Every doubt of the other parts is settled here first: clocks and why they are held, other processes,
shares of a card (MIG), versions of driver and CUPTI. GPM's counters are asked for while products
run: they are of use to gobrrr if this user gets them, and refuted as a source if not, or if the
tensor pipes are told idle then.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.gpu.card import Card, plain, tried
from benchmarks.gpu.setting import Setting

LIMIT_S = 40
# Asked without arguments, of ``nvmlDeviceGet*``.
ASKED = (
    "Name", "Brand", "CudaComputeCapability", "NumGpuCores", "MemoryBusWidth", "MemoryInfo",
    "PowerManagementLimit", "EnforcedPowerLimit", "PowerManagementDefaultLimit",
    "PowerManagementLimitConstraints", "PowerUsage", "TotalEnergyConsumption", "PerformanceState",
    "CurrentClocksEventReasons", "SupportedClocksEventReasons", "UtilizationRates",
    "ComputeRunningProcesses", "GraphicsRunningProcesses", "MigMode", "EccMode", "ComputeMode",
    "PersistenceMode", "VirtualizationMode", "CurrPcieLinkGeneration", "CurrPcieLinkWidth",
    "MaxPcieLinkGeneration", "MaxPcieLinkWidth", "AutoBoostedClocksEnabled",
)  # fmt: skip
CLOCKS = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
POLICIES = {
    "power": 0, "thermal": 1, "sync_boost": 2, "board_limit": 3, "low_utilization": 4,
    "reliability": 5, "application_clocks": 10, "base_clocks": 11,
}  # fmt: skip
# Ids of ``NVML_GPM_METRIC_*``.
METRICS = {
    "graphics": 1, "sm": 2, "occupancy": 3, "integer": 4, "tensor": 5, "hmma": 7, "imma": 9,
    "dram_bandwidth": 10, "fp32": 12, "fp16": 13, "pcie_tx_mib_s": 20, "pcie_rx_mib_s": 21,
}  # fmt: skip
FILES = (
    "/proc/driver/nvidia/version", "/proc/sys/kernel/yama/ptrace_scope",
    "/proc/sys/kernel/perf_event_paranoid", "/proc/loadavg", "/sys/fs/cgroup/cpu.max",
    "/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/memory.max",
)  # fmt: skip
PACKAGES = (
    "torch", "triton", "nvidia-ml-py", "transformers", "lightning", "accelerate", "numpy",
    "nvidia-cuda-cupti", "nvidia-cuda-cupti-cu12", "nvidia-cuda-cupti-cu13", "nvidia-cuda-runtime",
)  # fmt: skip


def of_driver(card: Card) -> dict[str, Any]:
    """All that NVML tells once."""
    nvml = card.nvml
    found = {name: card.ask(name) for name in ASKED}
    found["clocks_mhz"] = {name: card.ask("ClockInfo", kind) for name, kind in CLOCKS.items()}
    found["max_clocks_mhz"] = {
        name: card.ask("MaxClockInfo", kind) for name, kind in CLOCKS.items()
    }
    found["application_clocks_mhz"] = {
        name: card.ask("ApplicationsClock", kind) for name, kind in CLOCKS.items()
    }
    found["violations"] = {
        name: card.ask("ViolationStatus", policy) for name, policy in POLICIES.items()
    }
    found["temperature_c"] = card.ask("Temperature", 0)
    found["temperature_thresholds_c"] = [card.ask("TemperatureThreshold", i) for i in range(7)]
    found["driver"] = tried(lambda: plain(nvml.nvmlSystemGetDriverVersion()))
    found["nvml"] = tried(lambda: plain(nvml.nvmlSystemGetNVMLVersion()))
    found["cuda_of_driver"] = tried(nvml.nvmlSystemGetCudaDriverVersion_v2)
    found["devices"] = tried(nvml.nvmlDeviceGetCount)
    return found


def time_of_reads(card: Card) -> list[float]:
    """Milliseconds that a row of the sampler takes, ten times."""
    found = []
    for _ in range(10):
        begin = time.perf_counter()
        card.sample()
        found.append(round((time.perf_counter() - begin) * 1e3, 3))
    return found


def of_counters(card: Card, work: Callable[[], None], seconds: float) -> dict[str, Any]:
    """GPM's metrics over a window in which ``work`` (which waits for the device) is repeated."""
    nvml = card.nvml
    supported = bool(nvml.nvmlGpmQueryDeviceSupport(card.handle).isSupportedDevice)
    found: dict[str, Any] = {"supported": supported}
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    try:
        work()
        nvml.nvmlGpmSampleGet(card.handle, samples[0])
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            work()
        nvml.nvmlGpmSampleGet(card.handle, samples[1])
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(METRICS)
        asked.sample1, asked.sample2 = samples
        for i, metric in enumerate(METRICS.values()):
            asked.metrics[i].metricId = metric
        nvml.nvmlGpmMetricsGet(asked)
        found["window_s"] = time.perf_counter() - begin
        found["metrics"] = {
            name: asked.metrics[i].value if asked.metrics[i].nvmlReturn == 0
            else {"error": asked.metrics[i].nvmlReturn}
            for i, name in enumerate(METRICS)
        }  # fmt: skip
    finally:
        for sample in samples:
            nvml.nvmlGpmSampleFree(sample)
    return found


def cupti_version() -> Any:
    """CUPTI's version by the library that PyTorch has loaded; ``None`` where it has none."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split()[-1] for line in maps if "libcupti" in line}
    if not paths:
        return None
    path = sorted(paths)[0]
    number = ctypes.c_uint32()
    ctypes.CDLL(path).cuptiGetVersion(ctypes.byref(number))
    return {"library": Path(path).name, "version": number.value}


def of_machine() -> dict[str, Any]:
    """Processor, limits and permissions of this process."""
    found: dict[str, Any] = {"python": platform.python_version(), "cores": os.cpu_count()}
    found["cores_allowed"] = tried(lambda: len(os.sched_getaffinity(0)))
    found["root"] = tried(lambda: os.geteuid() == 0)
    found["ncu"], found["nsys"] = (shutil.which(name) is not None for name in ("ncu", "nsys"))
    for path in FILES:
        found[path] = tried(Path(path).read_text)
    found["only_root_may_count"] = tried(
        lambda: _line("/proc/driver/nvidia/params", "RmProfilingAdminOnly")
    )
    found["processor"] = tried(lambda: _line("/proc/cpuinfo", "model name"))
    found["capabilities"] = tried(lambda: _line("/proc/self/status", "CapEff"))
    found["memory"] = tried(lambda: _line("/proc/meminfo", "MemTotal"))
    found["shared_memory_bytes"] = tried(lambda: shutil.disk_usage("/dev/shm").total)
    found["temporary_folder_free_bytes"] = tried(lambda: shutil.disk_usage("/tmp").free)
    found["packages"] = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found["packages"][name] = importlib.metadata.version(name)
    return found


def _line(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next(line for line in lines if line.startswith(name)).partition(":")[2].strip()


def of_torch(device: str) -> dict[str, Any]:
    """PyTorch's versions and what it says of the device."""
    import torch

    found = {
        "torch": torch.__version__, "cuda": torch.version.cuda,
        "cudnn": tried(torch.backends.cudnn.version), "threads": torch.get_num_threads(),
    }  # fmt: skip
    if device != "cpu":
        properties = torch.cuda.get_device_properties(device)
        # Not its serial number or bus.
        names = [n for n in dir(properties) if not n.startswith("_") and "uuid" not in n]
        found["properties"] = {
            n: v for n in names if isinstance(v := getattr(properties, n), int | float | str)
        }
        found["nccl"] = tried(lambda: list(torch.cuda.nccl.version()))
        found["memory_info"] = tried(lambda: list(torch.cuda.mem_get_info(device)))
        found["driver_entry"] = tried(lambda: torch._C._cuda_getDriverVersion())
        found["cupti"] = tried(cupti_version)
    return found


def run(setting: Setting, save: Callable[[Any], None]) -> Any:
    """Everything once; GPM over half a second of products."""
    found: dict[str, Any] = {"machine": of_machine()}
    try:
        card = Card()
    except Exception as error:
        card = None
        found["driver"] = {"error": f"{type(error).__name__}: {error}"}
    if card is not None:
        found["driver"] = of_driver(card)
        found["sample_ms"] = tried(lambda: time_of_reads(card))
    save(found)
    found["torch"] = tried(lambda: of_torch(setting.device))
    save(found)
    if setting.device == "cpu" or card is None:
        found["counters"] = {"skipped": "needs CUDA"}
        return found
    import torch

    a = torch.randn(8192, 8192, device=setting.device, dtype=torch.bfloat16)
    v = torch.randn(1 << 28, device=setting.device)
    copied = torch.empty_like(v)

    def products() -> None:
        for _ in range(10):
            torch.mm(a, a)
        torch.cuda.synchronize(setting.device)

    def copies() -> None:
        for _ in range(20):
            copied.copy_(v)
        torch.cuda.synchronize(setting.device)

    for name, work in (("products", products), ("copies", copies)):
        found[f"counters_{name}"] = tried(of_counters, card, work, 0.5)
    found["idle_counters"] = tried(lambda: of_counters(card, lambda: time.sleep(0.05), 0.3))
    found["driver_after"] = of_driver(card)
    return found
