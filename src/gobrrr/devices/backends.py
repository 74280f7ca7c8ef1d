"""The kinds of device that can be measured here: one file each, in one tuple."""

from __future__ import annotations

from typing import Literal, Protocol

from gobrrr.devices import cpu, cuda
from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.identity import DeviceIdentity


class Backend(Protocol):
    """One kind of device. A module with these names is one."""

    @property
    def KINDS(self) -> tuple[str, ...]:  # noqa: N802 - a module's constant
        """What ``DeviceIdentity.kind`` can be."""

    @property
    def IS_GPU(self) -> bool:  # noqa: N802
        """Whether it is what ``identify("gpu")`` asks for."""

    def identify(self) -> DeviceIdentity | None:
        """The device of this kind that PyTorch would use; ``None`` where there is none."""

    def operator_threads(self, wanted: int | None) -> int:
        """Threads of PyTorch's operators that the ceilings hold for; 1 if they do not matter."""

    def measure(self, device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
        """Measure the ceilings; ``progress(done, total, what)`` is told before each part."""

    def synchronise(self) -> None:
        """Wait until the device has done all that this process asked of it."""


# In the order in which PyTorch prefers them: a step runs on the first that is there.
BACKENDS: tuple[Backend, ...] = (cuda, cpu)


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


def synchronise() -> None:
    """Wait for every device that this process uses."""
    for backend in BACKENDS:
        backend.synchronise()
