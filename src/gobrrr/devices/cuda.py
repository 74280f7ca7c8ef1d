"""GPUs that PyTorch drives as ``torch.cuda``, CUDA and ROCm: a ``Backend``."""

from __future__ import annotations

import sys

from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.identity import Cache, DeviceIdentity

KINDS = ("cuda", "hip")
IS_GPU = True


def identify() -> DeviceIdentity | None:
    """The current device; ``None`` where PyTorch is not installed or sees none."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    hip = getattr(torch.version, "hip", None)
    cache_bytes = getattr(properties, "L2_cache_size", 0)
    architecture = getattr(properties, "gcnArchName", "") if hip else ""
    return DeviceIdentity(
        name=torch.cuda.get_device_name(index),
        kind="hip" if hip else "cuda",
        memory_bytes=int(properties.total_memory),
        cores=int(properties.multi_processor_count),
        threads=None,
        caches=(Cache(2, int(cache_bytes), 1),) if cache_bytes else (),
        isa=(architecture or f"sm_{properties.major}{properties.minor}",),
        driver=f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}",
    )


def operator_threads(wanted: int | None) -> int:
    """1: a GPU's rates do not depend on the threads of the host."""
    return 1


def measure(device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
    """Measure the current device."""
    import torch

    from gobrrr.devices.gpu_measure import measure_gpu

    return measure_gpu(torch, torch.cuda.current_device(), progress=progress)


def synchronise() -> None:
    """Wait for the current device, if this process uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
