"""Processors: a ``Backend``."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.cpu.identity import identify_processor
from gobrrr.devices.identity import DeviceIdentity

KINDS = ("cpu",)
IS_GPU = False
MISSING: tuple[str, ...] = ()


def at(index: int) -> Any:
    """The same: there are no others."""
    return sys.modules[__name__]


def identify() -> DeviceIdentity:
    """The processor as this process may use it."""
    return identify_processor()


def operator_threads(wanted: int | None) -> int:
    """``wanted``, or as many as PyTorch's operators use now."""
    import torch

    return wanted or torch.get_num_threads()


def measure(device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
    """Measure everything, with PyTorch's operators on ``threads`` threads."""
    from gobrrr.devices.cpu.measure import measure_cpu

    return measure_cpu(device, threads, progress)


def synchronise() -> None:
    """Nothing: an operator has ended when it returns."""


def in_use() -> bool:
    """Always: the program itself runs on it."""
    return True


def timer() -> None:
    """None: the host's clock tells when work is done."""


def profiler() -> None:
    """None: there is no device beside the host, whose profiler is ``live.profiles.profile``."""


def streams() -> None:
    """None: operators run one after the other in the thread that calls them."""


def watch_graphs(replays: Callable[[], None]) -> Callable[[], None]:
    """Nothing to watch: a processor has no graphs of kernels."""
    return lambda: None


def memory() -> None:
    """None: PyTorch does not count; ``verification.memory`` reads its profiler."""


def capturing() -> bool:
    """No: a processor has none."""
    return False


def held_by_others_bytes() -> None:
    """None: a processor is shared by design; ``measure.load`` watches it."""


def card_state() -> None:
    """A processor is no card."""


def random_states() -> tuple[Any, ...]:
    """None: the processor's generator is PyTorch's default one, which is kept apart."""
    return ()


def set_random_states(states: tuple[Any, ...]) -> None:
    """Nothing was kept."""
