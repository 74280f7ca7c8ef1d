"""What ``gobrrr doctor`` tries on a GPU, in a second: each finding with what would mend it."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from gobrrr.devices.card import CLOCKS_SET, IDLE, CardState
from gobrrr.devices.cuda.cupti import version_numbers
from gobrrr.devices.cuda.nvml import card_of, nvml_trouble
from gobrrr.measure.torch_profiler import profiler_of_torch
from gobrrr.timeline.quantities import percent, si

KERNELS = 20
# Subject, finding, whether it works (``None``: plain information).
Finding = tuple[str, str, bool | None]

WSL = "microsoft" in platform.release().lower()
_ALLOW_WSL = (
    "under WSL allow it in Windows (NVIDIA Control Panel, Desktop, Enable Developer Settings, "
    "Manage GPU Performance Counters, all users) and run wsl --update"
)
# NVIDIA: https://developer.nvidia.com/ERR_NVGPUCTRPERM. AMD: ROCm installation, "Prerequisites".
_ALLOW = {
    "cuda": "the driver may keep profiling for administrators: echo 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf and "
    "reboot, or docker run --cap-add=SYS_ADMIN; another profiler (Nsight, DCGM) may hold it",
    "hip": "the user must be in the groups of the device: sudo usermod -aG render,video $USER",
}
# CUPTI release notes, "Updates in CUDA 13.1": kernels with zero timestamps, at the start of a
# session above all (pytorch/pytorch#192021), from CUDA 12.6 update 2 on.
_ZEROED_FROM, _ZEROED_BEFORE = (12, 6, 80), (13, 1)


class FaultError(Exception):
    """Something does not work; the message is a sentence with what mends it."""


class DeviceRecord(NamedTuple):
    """One launch call or one kernel as the profiler recorded it."""

    correlation: int
    start_ns: int
    duration_ns: int


def gpu_checks(torch: Any) -> Iterator[Finding]:
    """What a GPU that PyTorch drives as ``torch.cuda`` can do, or why there is none."""
    if not torch.cuda.is_available():
        if (why := why_no_gpu(torch)) is not None:
            yield "GPU", why, False
        return
    for subject, probe in PROBES.items():
        try:
            yield subject, probe(torch), True
        except FaultError as fault:
            yield subject, str(fault), False
        except Exception as error:
            line = (str(error).splitlines() or [""])[0]
            yield subject, f"failed: {type(error).__name__}: {line}"[:200], False
    if torch.version.hip:
        return
    fault_of_cupti = known_fault(cupti_version(torch))
    yield "CUPTI", fault_of_cupti or _dotted(cupti_version(torch)), None if fault_of_cupti else True
    trouble = nvml_trouble()
    if trouble is not None:
        yield "NVML", trouble, False
        return
    try:
        card = card_of(torch.cuda.current_device())
        yield from card_findings(None if card is None else card.state())
    except Exception as error:
        yield "NVML", f"failed: {type(error).__name__}: {error}"[:200], False


# ---- no GPU ---------------------------------------------------------------------------------


def why_no_gpu(torch: Any, root: Path = Path("/")) -> str | None:
    """Why PyTorch sees none, with what mends it; ``None`` if nothing says that there is one."""
    card_here = any((root / "dev" / name).exists() for name in ("nvidia0", "nvidiactl", "dxg"))
    if not torch.version.cuda:
        if card_here and not getattr(torch.version, "hip", None):
            mend = "pip install --force-reinstall torch"
            return f"there is one, but this PyTorch is built without CUDA: {mend}"
        return None
    if card_here:
        try:
            torch.cuda.init()
        except Exception as error:
            trouble = nvml_trouble() or ""
            mend = f"; {trouble}" if trouble and "pip install" not in trouble else ""
            return f"PyTorch cannot use it: {str(error).splitlines()[0]}{mend}"[:400]
        return "PyTorch sees none: CUDA_VISIBLE_DEVICES may hide it (unset CUDA_VISIBLE_DEVICES)"
    if (root / "proc/driver/nvidia/version").exists():
        return "the host has one that this container was not given: docker run --gpus all"
    if WSL:
        return "WSL gives none: install NVIDIA's driver in Windows, then run wsl --update"
    return None


# ---- what PyTorch and its profiler can do -----------------------------------------------------


def _profiled_kernels(torch: Any) -> str:
    device_type = torch.autograd.DeviceType.CUDA
    activities = torch.profiler.ProfilerActivity
    x = torch.zeros(1 << 16, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    with profiler_of_torch(activities=[activities.CPU, activities.CUDA]) as recorded:
        for _ in range(KERNELS):
            x.add_(1)
        torch.cuda.synchronize()
    launches, kernels = [], []
    for event in recorded.profiler.kineto_results.events():
        row = DeviceRecord(event.correlation_id(), event.start_ns(), event.duration_ns())
        if event.device_type() == device_type and "elementwise" in event.name():
            kernels.append(row)
        elif "LaunchKernel" in event.name():
            launches.append(row)
    allow = _ALLOW_WSL if WSL else _ALLOW["hip" if torch.version.hip else "cuda"]
    fault = fault_of_records(launches, kernels, allow)
    if fault is not None:
        raise FaultError(fault)
    shortest_us = min(kernel.duration_ns for kernel in kernels) * 1e-3
    return f"{len(kernels)} kernels with launches and times, the shortest {shortest_us:.2f} µs"


def fault_of_records(
    launches: Sequence[DeviceRecord], kernels: Sequence[DeviceRecord], allow: str
) -> str | None:
    """What is wrong with the records of ``KERNELS`` kernels, as a sentence; ``None`` if nothing.

    ``allow``: what mends a profiler that sees no kernel.
    """
    if not kernels:
        return f"the profiler records no kernel{' but launches' if launches else ''}: {allow}"
    if len(kernels) < KERNELS:
        return f"the profiler lost {KERNELS - len(kernels)} of {KERNELS} kernels: {_RENEW}"
    begun = {launch.correlation: launch.start_ns for launch in launches}
    if any(kernel.correlation not in begun for kernel in kernels):
        return f"the profiler does not say which call launched a kernel: {_RENEW}"
    if any(kernel.start_ns <= 0 or kernel.duration_ns <= 0 for kernel in kernels):
        return f"the profiler gives kernels no times: {_RENEW}"
    first = min(kernel.start_ns - begun[kernel.correlation] for kernel in kernels)
    if first < 0:
        return (
            f"the profiler has kernels {-first * 1e-3:.1f} µs before their launches: its clocks "
            "of host and device differ; run gobrrr doctor again, else sudo reboot"
        )
    return None


_RENEW = "pip install --upgrade torch (its CUPTI is at fault, or another profiler holds the GPU)"


def _events(torch: Any) -> str:
    x = torch.zeros(1 << 20, device="cuda")
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    before.record()
    for _ in range(10):
        x.add_(1)
    after.record()
    torch.cuda.synchronize()
    took_ms = before.elapsed_time(after)
    if not took_ms > 0:
        raise FaultError(f"ten kernels take {took_ms} ms between events: sudo reboot")
    return f"ten kernels take {took_ms * 1e3:.0f} µs between events"


def _graph(torch: Any) -> str:
    x = torch.zeros(1, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
    graph.replay()
    if x.item() != 2:
        raise FaultError(f"a replay did not do what was captured: {_RENEW}")
    return "captured and replayed"


# The graph comes last: a profiler that begins after a capture is at fault in some releases.
PROBES: Mapping[str, Callable[[Any], str]] = {
    "GPU profiler": _profiled_kernels,
    "GPU events": _events,
    "CUDA graph": _graph,
}


# ---- CUPTI ----------------------------------------------------------------------------------


def cupti_version(torch: Any) -> tuple[int, ...]:
    """Of the package that comes with PyTorch, else of the CUDA that it was built for."""
    cuda = str(torch.version.cuda)
    suffix = f"-cu{cuda.split('.')[0]}"
    for name in (f"nvidia-cuda-cupti{suffix}", "nvidia-cuda-cupti"):
        try:
            found = version_numbers(version(name))
        except PackageNotFoundError:
            continue
        if found[:1] == version_numbers(cuda)[:1]:
            return found
    return version_numbers(cuda)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def known_fault(cupti: tuple[int, ...]) -> str | None:
    """What is known to be wrong with a version of CUPTI, with what mends it.

    >>> known_fault((12, 6, 68)), known_fault((13, 1, 75))
    (None, None)
    >>> known_fault((12, 8))[:41]
    '12.8: the first kernels of a profile can '
    """
    if not _ZEROED_FROM <= cupti < _ZEROED_BEFORE:
        return None
    # A major version's libraries go with its PyTorch.
    mend = "pip install --upgrade 'nvidia-cuda-cupti>=13.1'"
    if cupti[0] < _ZEROED_BEFORE[0]:
        mend = "pip install --upgrade torch (one for CUDA 13.1 or later)"
    return (
        f"{_dotted(cupti)}: the first kernels of a profile can be lost or have no times "
        f"(pytorch/pytorch#192021, mended in 13.1): {mend}"
    )


# ---- the card -------------------------------------------------------------------------------


def card_findings(state: CardState | None) -> Iterator[Finding]:
    """What a card's state says, each with what would mend it."""
    if state is None:
        yield (
            "NVML",
            "does not know this device (a virtual GPU or a container's): nvidia-smi -L",
            None,
        )
        return
    told = [
        f"SM {_of(state.sm_mhz, state.sm_max_mhz)} MHz",
        f"memory {_of(state.memory_mhz, state.memory_max_mhz)} MHz",
        f"{_of(_whole(state.power_w), _whole(state.power_limit_w))} W",
        f"{_of(state.temperature_c)} °C",
        f"PCIe generation {_of(state.pcie_generation, state.pcie_max_generation)}, "
        f"width {_of(state.pcie_width, state.pcie_max_width)}",
    ]
    yield "card", ", ".join(told), None
    held = [reason for reason in state.reasons or () if reason != IDLE]
    if CLOCKS_SET in held:
        reset = "sudo nvidia-smi --reset-applications-clocks"
        yield "clock", f"application clocks allow no more: {reset}", None
    elif held:
        yield "clock", f"held ({', '.join(held)}): nvidia-smi -q -d PERFORMANCE,POWER", False
    if state.others is None:
        yield "other processes", "the driver does not tell: nvidia-smi", None
    for other in state.others or ():
        size = "" if other.held_bytes is None else f" holds {si(other.held_bytes, 'B')}"
        busy = "" if other.busy_share is None else f", computes {percent(other.busy_share)}"
        text = f"pid {other.pid}{size}{busy}: nvidia-smi shows it; choose another GPU or wait"
        yield "other processes", text, False if other.busy_share else None
    if state.mig:
        text = "a part of a card: clock, power and energy are the whole card's; nvidia-smi -L"
        yield "MIG", text, None


def _of(now: float | None, most: float | None = None) -> str:
    shown = "unknown" if now is None else f"{now:g}"
    return shown if most is None else f"{shown} of {most:g}"


def _whole(value: float | None) -> float | None:
    return None if value is None else round(value)
