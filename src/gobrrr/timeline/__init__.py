"""Steps, ops, kernels and host spans as frozen plain data; interval arithmetic in integer ns."""

from gobrrr.timeline.data import (
    Device,
    HostKind,
    HostSpans,
    KernelKind,
    Kernels,
    Phase,
    Timeline,
    no_host_spans,
    no_kernels,
)
from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

__all__ = [
    "Arg", "Device", "HostKind", "HostSpans", "KernelKind", "Kernels", "OpCall", "Phase",
    "TensorSpec", "Timeline", "no_host_spans", "no_kernels",
]  # fmt: skip
