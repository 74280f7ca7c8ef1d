"""GPUs of Intel, which PyTorch calls ``xpu``: a ``Backend``."""

from __future__ import annotations

from gobrrr.devices.accelerator import AcceleratorBackend
from gobrrr.devices.identity import DeviceIdentity


class Xpu(AcceleratorBackend):
    """Identified and timed; the rest as far as PyTorch's API for all accelerators reaches."""

    KINDS = ("xpu",)
    TYPE = "xpu"
    COUNTS_MEMORY = True
    MISSING = (
        "gobrrr does not measure the ceilings of Intel GPUs: it uses the data sheet's, if any.",
        "gobrrr does not read the profiler's traces of Intel GPUs: a step is timed, but not split "
        "into its parts.",
    )

    def identify(self) -> DeviceIdentity | None:
        """``None`` where PyTorch is not installed or sees none."""
        try:
            import torch
        except ImportError:
            return None
        xpu = getattr(torch, "xpu", None)
        if xpu is None or not xpu.is_available():
            return None
        properties = xpu.get_device_properties(self._device(torch))
        units = getattr(properties, "gpu_subslice_count", None)
        return DeviceIdentity(
            name=str(properties.name),
            kind="xpu",
            memory_bytes=int(properties.total_memory),
            cores=None if units is None else int(units),
            threads=None,
            driver=str(getattr(properties, "driver_version", "")),
        )
