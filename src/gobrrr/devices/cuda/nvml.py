"""The state of an NVIDIA card by NVML, the driver's own library (package ``nvidia-ml-py``)."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from gobrrr.devices.card import CLOCKS_SET, IDLE, POWER_CAP, CardState, OtherProcess

PACKAGE_MISSING = (
    "the package nvidia-ml-py is not installed: clocks, power, heat and other processes are not "
    "read; pip install 'gobrrr[gpu]'"
)
# By the end of the name of NVML's exception. NVML API reference, "nvmlReturn_t".
_FAULTS = {
    "LibraryNotFound": "the driver's library libnvidia-ml.so.1 is not here: install the driver, or "
    "start the container by docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "DriverNotLoaded": "the NVIDIA driver is not loaded: sudo modprobe nvidia",
    "LibRmVersionMismatch": "the driver's library and its kernel module are of different versions, "
    "as after an update: sudo reboot",
    "NoPermission": "this user or container may not ask the driver: docker run --gpus all "
    "-e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    "GpuIsLost": "the GPU has fallen off its bus: sudo reboot",
    "ResetRequired": "the GPU has to be reset: sudo nvidia-smi --gpu-reset",
}
# NVML API reference, "NvmlClocksEventReasons".
_REASONS = {
    0x001: IDLE, 0x002: CLOCKS_SET, 0x004: POWER_CAP, 0x008: "hardware slowdown",
    0x010: "sync boost", 0x020: "heat, by the driver", 0x040: "heat, by the hardware",
    0x080: "power brake", 0x100: "display clocks", 0x200: "board limit", 0x400: "reliability",
}  # fmt: skip
# How far back the first state looks for what other processes did.
_FIRST_LOOK_US = 1_000_000

Read = Callable[[Any, Any], Any]


def reasons_of(bits: int) -> tuple[str, ...]:
    """What holds the clock.

    >>> reasons_of(0), reasons_of(0x24)
    ((), ('power cap', 'heat, by the driver'))
    """
    return tuple(name for bit, name in _REASONS.items() if bits & bit)


def _reasons(nvml: Any, handle: Any) -> tuple[str, ...]:
    # The name before CUDA 12.2.
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return reasons_of((ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons)(handle))


def _held_ns(what: str) -> Read:
    def read(nvml: Any, handle: Any) -> int:
        policy = getattr(nvml, f"NVML_PERF_POLICY_{what}")
        try:
            return int(nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime)
        except _refusals(nvml):
            # What takes its place: it is to be gone with CUDA 14.
            field = getattr(nvml, f"NVML_FI_DEV_PERF_POLICY_{what}")
            (found,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
            if found.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(found.nvmlReturn) from None
            return int(found.value.ullVal)

    return read


_FIELDS: Mapping[str, Read] = {
    "card": lambda n, h: str(n.nvmlDeviceGetUUID(h)),
    "sm_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_SM),
    "sm_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_SM),
    "memory_mhz": lambda n, h: n.nvmlDeviceGetClockInfo(h, n.NVML_CLOCK_MEM),
    "memory_max_mhz": lambda n, h: n.nvmlDeviceGetMaxClockInfo(h, n.NVML_CLOCK_MEM),
    "power_w": lambda n, h: n.nvmlDeviceGetPowerUsage(h) * 1e-3,
    "power_limit_w": lambda n, h: n.nvmlDeviceGetEnforcedPowerLimit(h) * 1e-3,
    "temperature_c": lambda n, h: n.nvmlDeviceGetTemperature(h, n.NVML_TEMPERATURE_GPU),
    "reasons": _reasons,
    "power_held_ns": _held_ns("POWER"),
    "heat_held_ns": _held_ns("THERMAL"),
    "energy_mj": lambda n, h: n.nvmlDeviceGetTotalEnergyConsumption(h),
    "pcie_generation": lambda n, h: n.nvmlDeviceGetCurrPcieLinkGeneration(h),
    "pcie_max_generation": lambda n, h: n.nvmlDeviceGetMaxPcieLinkGeneration(h),
    "pcie_width": lambda n, h: n.nvmlDeviceGetCurrPcieLinkWidth(h),
    "pcie_max_width": lambda n, h: n.nvmlDeviceGetMaxPcieLinkWidth(h),
    "mig": lambda n, h: n.nvmlDeviceGetMigMode(h)[0] == 1,
}


class Card:
    """A card that this process uses.

    ``part`` is the instance that it uses of a divided card (MIG), else the card itself.
    """

    def __init__(self, nvml: Any, handle: Any, part: Any) -> None:
        self._nvml, self._handle, self._part = nvml, handle, part
        self._since_us = time.time_ns() // 1000 - _FIRST_LOOK_US

    def state(self) -> CardState:
        """Now."""
        now_us = time.time_ns() // 1000
        found = {name: self._asked(read) for name, read in _FIELDS.items()}
        # Of a divided card the processes are those of this part alone.
        undivided = not found["mig"] or self._part is not self._handle
        others = self._asked(self._others) if undivided else None
        mean_mhz = self._asked(self._mean_clock)
        self._since_us = now_us
        return CardState(at_ns=time.perf_counter_ns(), sm_mean_mhz=mean_mhz, others=others, **found)

    def _asked(self, read: Read) -> Any:
        try:
            return read(self._nvml, self._handle)
        except Exception:
            # A refusal of the driver's, or what another version of the package makes of it: the
            # program goes on without.
            return None

    def _mean_clock(self, nvml: Any, handle: Any) -> float | None:
        _, samples = nvml.nvmlDeviceGetSamples(
            handle, nvml.NVML_PROCESSOR_CLK_SAMPLES, self._since_us
        )
        values = [sample.sampleValue.uiVal for sample in samples]
        values = [value for value in values if value > 0]
        return sum(values) / len(values) if values else None

    def _others(self, nvml: Any, handle: Any) -> tuple[OtherProcess, ...]:
        listed = list(nvml.nvmlDeviceGetComputeRunningProcesses(self._part))
        others = [process for process in listed if process.pid != os.getpid()]
        busy = (self._asked(self._busy) or {}) if others else {}
        if listed and len(others) == len(listed):
            # In a container the driver may count processes differently: one of them is this one,
            # and which of them computed for another is not known.
            others.remove(max(others, key=lambda process: process.usedGpuMemory or 0))
            busy = {}
        return tuple(
            OtherProcess(
                int(process.pid),
                process.usedGpuMemory,
                # Once the driver tells of any, it tells of none that did not compute.
                busy.get(process.pid, 0.0) if busy else None,
            )
            for process in others
        )

    def _busy(self, nvml: Any, handle: Any) -> dict[int, float]:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, self._since_us)
        busy: dict[int, float] = {}
        for sample in samples:
            pid = int(sample.pid)
            busy[pid] = max(busy.get(pid, 0.0), min(sample.smUtil, 100) / 100)
        return busy


def _refusals(nvml: Any) -> tuple[type[Exception], ...]:
    # A function that the package or the library does not have is a refusal too.
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError)
    return (nvml.NVMLError, mismatch, AttributeError)


def card_with(nvml: Any, properties: Any) -> Card | None:
    """The card of a device's properties as torch has them; ``None`` if NVML knows none such.

    By its UUID, else by its place on the bus: indices are other ones than torch's, which
    ``CUDA_VISIBLE_DEVICES`` and the order of devices change.
    """
    uuid = str(getattr(properties, "uuid", "") or "")
    places = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    asked: list[Callable[[], Any]] = []
    if uuid:
        asked.append(lambda: nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}"))
        asked.append(lambda: nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}"))
    if None not in places:
        domain, bus, device = places
        at = f"{domain:08X}:{bus:02X}:{device:02X}.0"
        asked.append(lambda: nvml.nvmlDeviceGetHandleByPciBusId(at))
    for ask in asked:
        try:
            found = ask()
        except _refusals(nvml):
            continue
        try:
            return Card(nvml, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(found), found)
        except _refusals(nvml):
            return Card(nvml, found, found)
    return None


def nvml_trouble() -> str | None:
    """Why NVML does not answer, as a sentence with what mends it; ``None`` if it does."""
    try:
        import pynvml
    except Exception:
        # Missing, or one that does not fit this Python.
        return PACKAGE_MISSING
    if not hasattr(pynvml, "NVMLError"):
        # A file of the program's own of that name.
        return PACKAGE_MISSING
    try:
        pynvml.nvmlInit()
    except _refusals(pynvml) as error:
        kind = type(error).__name__.removeprefix("NVMLError_")
        return _FAULTS.get(kind, f"NVML does not begin ({error}): nvidia-smi says more")
    return None


@functools.cache
def card_of(index: int) -> Card | None:
    """The card of torch's device of an index; ``None`` if NVML does not answer for it."""
    if nvml_trouble() is not None:
        return None
    import pynvml
    import torch

    return card_with(pynvml, torch.cuda.get_device_properties(index))
