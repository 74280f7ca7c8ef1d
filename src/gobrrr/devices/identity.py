"""What a device says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Cache:
    """One level of data cache.

    Attributes:
        level: 1, 2, 3.
        size_bytes: of one instance.
        shared_by: hardware threads that share one instance.
    """

    level: int
    size_bytes: int
    shared_by: int


@dataclass(frozen=True, slots=True)
class DeviceIdentity:
    """A device as its system describes it; what the system does not say is ``None`` or empty.

    Attributes:
        name: marketing name as the driver or the system gives it.
        kind: ``cpu``, ``cuda``, ``hip``: one of the ``KINDS`` of a backend.
        memory_bytes: of the device; for a CPU what this process may use.
        cores: physical cores this process may use; multiprocessors of a GPU.
        threads: hardware threads this process may use; ``None`` on a GPU.
        caches: data caches from the smallest; of one core, as a process sees them.
        isa: instruction sets that matter to arithmetic; a GPU's architecture.
        driver: version of CUDA or ROCm; empty on a CPU.
        index: its number among those of its kind, as PyTorch counts. Two of one make are one device
            to whoever keeps what was measured.
    """

    name: str
    kind: str
    memory_bytes: int | None
    cores: int | None
    threads: int | None
    caches: tuple[Cache, ...] = ()
    isa: tuple[str, ...] = ()
    driver: str = ""
    index: int = field(default=0, repr=False, compare=False)
