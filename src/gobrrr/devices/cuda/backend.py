"""GPUs that PyTorch drives as ``torch.cuda``, CUDA and ROCm: a ``Backend``."""

from __future__ import annotations

from collections.abc import Callable

from gobrrr.devices.accelerator import AcceleratorBackend
from gobrrr.devices.card import CardState
from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.cuda.cupti import Profiler, detach_after_profile
from gobrrr.devices.identity import Cache, DeviceIdentity


class Cuda(AcceleratorBackend):
    """CUDA and ROCm: everything is measured."""

    KINDS = ("cuda", "hip")
    TYPE = "cuda"
    ACTIVITY = "CUDA"
    COUNTS_MEMORY = True

    def identify(self) -> DeviceIdentity | None:
        """``None`` where PyTorch is not installed or sees none."""
        try:
            import torch
        except ImportError:
            return None
        if not torch.cuda.is_available():
            return None
        index = self._device(torch)
        properties = torch.cuda.get_device_properties(index)
        hip = getattr(torch.version, "hip", None)
        cache_bytes = getattr(properties, "L2_cache_size", 0)
        architecture = getattr(properties, "gcnArchName", "") if hip else ""
        return DeviceIdentity(
            name=torch.cuda.get_device_name(index),
            index=index,
            kind="hip" if hip else "cuda",
            memory_bytes=int(properties.total_memory),
            cores=int(properties.multi_processor_count),
            threads=None,
            caches=(Cache(2, int(cache_bytes), 1),) if cache_bytes else (),
            isa=(architecture or f"sm_{properties.major}{properties.minor}",),
            driver=f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}",
        )

    def held_by_others_bytes(self) -> int | None:
        """What is neither free nor reserved by this process; its context, some 500 MB, is in it."""
        torch = self._torch()
        if torch is None:
            return None
        index = self._device(torch)
        free, total = torch.cuda.mem_get_info(index)
        return max(int(total) - int(free) - int(torch.cuda.memory_reserved(index)), 0)

    def card_state(self) -> CardState | None:
        """Of the device that holds most, by NVML; ``None`` of AMD's, or where NVML is silent."""
        torch = self._torch()
        if torch is None or torch.version.hip:
            return None
        from gobrrr.devices.cuda.nvml import card_of

        card = card_of(self._device(torch))
        return None if card is None else card.state()

    def profiler(self) -> Profiler:
        """PyTorch's, which lets go of the GPU when it ends where that is safe."""
        detach_after_profile()
        return Profiler(self.TYPE, self.ACTIVITY)

    def watch_graphs(self, replays: Callable[[], None]) -> Callable[[], None]:
        """Of ``torch.cuda.CUDAGraph``."""
        from gobrrr.devices.cuda.graphs import around_replays

        return around_replays(before=replays)

    def measure(self, device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
        """Measure the device."""
        import torch

        from gobrrr.devices.cuda.measure import measure_gpu

        state = self.at(device.index).card_state
        return measure_gpu(torch, device.index, progress=progress, card_state=state)
