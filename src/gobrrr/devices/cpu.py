"""Processors: a ``Backend``."""

from __future__ import annotations

from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.cpu_identity import identify_processor
from gobrrr.devices.identity import DeviceIdentity

KINDS = ("cpu",)
IS_GPU = False


def identify() -> DeviceIdentity:
    """The processor as this process may use it."""
    return identify_processor()


def operator_threads(wanted: int | None) -> int:
    """``wanted``, or as many as PyTorch's operators use now."""
    import torch

    return wanted or torch.get_num_threads()


def measure(device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
    """Measure everything, with PyTorch's operators on ``threads`` threads."""
    from gobrrr.devices.cpu_measure import measure_cpu

    return measure_cpu(device, threads, progress)


def synchronise() -> None:
    """Nothing: an operator has ended when it returns."""
