"""GPUs of Apple, which PyTorch calls ``mps``: a ``Backend``."""

from __future__ import annotations

from gobrrr.devices.accelerator import AcceleratorBackend
from gobrrr.devices.cpu.identity import identify_processor
from gobrrr.devices.identity import DeviceIdentity


class Mps(AcceleratorBackend):
    """Identified and timed; PyTorch's profiler sees no kernels there."""

    KINDS = ("mps",)
    TYPE = "mps"
    HAS_STREAMS = False
    MISSING = (
        "gobrrr does not measure the ceilings of Apple GPUs: it uses the data sheet's, if any.",
        "PyTorch's profiler records no kernels of Apple GPUs: a step is timed, but not split into "
        "its parts.",
    )

    def identify(self) -> DeviceIdentity | None:
        """The one device; ``None`` where PyTorch is not installed or sees none."""
        try:
            import torch
        except ImportError:
            return None
        if not torch.backends.mps.is_available():
            return None
        # The GPU has no name of its own: it is the chip's.
        return DeviceIdentity(
            name=identify_processor().name,
            kind="mps",
            memory_bytes=int(torch.mps.recommended_max_memory()),
            cores=None,
            threads=None,
        )
