"""The kinds of device that gobrrr knows: one folder each, in one tuple."""

from __future__ import annotations

import sys
from typing import Literal

from gobrrr.devices.backend import Backend
from gobrrr.devices.cpu import backend as cpu
from gobrrr.devices.cuda.backend import Cuda
from gobrrr.devices.identity import DeviceIdentity
from gobrrr.devices.mps.backend import Mps
from gobrrr.devices.xpu.backend import Xpu

# In the order in which PyTorch prefers them: a step runs on the first that is there.
BACKENDS: tuple[Backend, ...] = (Cuda(), Xpu(), Mps(), cpu)


def identify(kind: Literal["cpu", "gpu"] | None = None) -> DeviceIdentity:
    """The device PyTorch would use here: a GPU that it sees, else the processor.

    Args:
        kind: ``cpu`` or ``gpu`` asks for one of the two.

    Raises:
        LookupError: ``gpu`` was asked for and PyTorch sees none.
    """
    for backend in BACKENDS:
        if kind is None or (kind == "gpu") == backend.IS_GPU:
            found = backend.identify()
            if found is not None:
                return found
    raise LookupError("PyTorch sees no GPU here")


def backend_of(kind: str) -> Backend:
    """The backend for a kind of device. Raises ``LookupError`` if there is none."""
    for backend in BACKENDS:
        if kind in backend.KINDS:
            return backend
    raise LookupError(f"no backend measures devices of kind {kind!r}")


def gpu_in_use(index: int | None = None) -> Backend | None:
    """The backend of the GPU that this process has put something on; ``None`` if there is none.

    ``index``: of several the one that steps are told by; by default the one that holds most.
    """
    if "torch" not in sys.modules:
        return None
    gpus = (backend for backend in BACKENDS if backend.IS_GPU and backend.in_use())
    found = next(gpus, None)
    return found if found is None or index is None else found.at(index)


def gpus_here() -> tuple[tuple[Backend, DeviceIdentity], ...]:
    """Each kind of GPU that PyTorch sees, with its current device."""
    found = ((backend, backend.identify()) for backend in BACKENDS if backend.IS_GPU)
    return tuple((backend, device) for backend, device in found if device is not None)


def capturing() -> bool:
    """Whether what this thread launches now goes into a graph of kernels."""
    return any(backend.capturing() for backend in BACKENDS if backend.IS_GPU)


def synchronise() -> None:
    """Wait for every device that this process uses."""
    for backend in BACKENDS:
        backend.synchronise()
