"""What gobrrr asks of a kind of device: one small protocol, and its parts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gobrrr.devices.card import CardState
from gobrrr.devices.ceilings import Ceilings, Progress
from gobrrr.devices.identity import DeviceIdentity

# What these are called where they are counted per step.
ALLOCATOR_RETRIES, DRIVER_ALLOCATIONS = "allocator_retries", "driver_allocations"


class DriverCalls(NamedTuple):
    """How often PyTorch's allocator of a device has turned to the driver.

    Attributes:
        retries: it found no room, gave its cached blocks back and asked again.
        allocations: calls that asked for memory.
    """

    retries: int
    allocations: int


class StepTimer(Protocol):
    """Lengths of steps on the device's own clock: the host runs ahead of a device."""

    def start_block(self) -> None:
        """Wait for the device, then mark the start of a block of steps."""

    def mark(self) -> None:
        """The end of a step, on the current stream: nothing waits for it."""

    def end_block(self) -> list[int]:
        """Wait for the device; the lengths of the steps between marks, in ns."""


class StepProfiler(Protocol):
    """Profiles consecutive steps of host and device as a trace in the profiler's own format."""

    @property
    def interrupted(self) -> bool:
        """Whether the program has ended this profiler, by starting and stopping one of its own."""

    def start(self) -> None:
        """Begin. Raises RuntimeError if another profiler is running."""

    def mark(self) -> None:
        """End one step here and begin the next, which ``ProfilerStep#N`` spans."""

    def stop(self, path: Path) -> None:
        """Wait for the device, end, and write the trace."""

    def may_see_more(self) -> bool:
        """Of the device nothing was recorded: whether another one, made now, may see it."""

    def abandon(self) -> None:
        """Stop without reading anything."""


class Streams(Protocol):
    """Queues of a device whose work may run beside each other: the current one, and one more."""

    def beside(self) -> AbstractContextManager[None]:
        """What the block launches goes on the other stream, after what the current one holds."""

    def join(self) -> None:
        """What the current stream is given from now on waits for the other; the host goes on."""


class MemoryMeter(Protocol):
    """What PyTorch's allocator of the device holds, in bytes."""

    def held_bytes(self) -> int:
        """Now."""

    def start_peak(self) -> None:
        """Wait for the device and forget the most that was held."""

    def peak_bytes(self) -> int:
        """Wait for the device; the most that was held since ``start_peak``."""

    def driver_calls(self) -> DriverCalls | None:
        """Of this process so far, without waiting; ``None`` where they are not counted."""


class Backend(Protocol):
    """One kind of device. A module with these names is one, and so is an object."""

    @property
    def KINDS(self) -> tuple[str, ...]:  # noqa: N802 - a module's constant
        """What ``DeviceIdentity.kind`` can be."""

    @property
    def IS_GPU(self) -> bool:  # noqa: N802
        """Whether it is what ``identify("gpu")`` asks for."""

    @property
    def MISSING(self) -> tuple[str, ...]:  # noqa: N802
        """Sentences on what gobrrr cannot do on such a device."""

    def at(self, index: int) -> Backend:
        """The same kind of device: the one with that number, as PyTorch counts."""

    def identify(self) -> DeviceIdentity | None:
        """The device of this kind that works for this process; ``None`` where there is none.

        Of several the one that holds most of its tensors, else the one that PyTorch would use.
        """

    def operator_threads(self, wanted: int | None) -> int:
        """Threads of PyTorch's operators that the ceilings hold for; 1 if they do not matter."""

    def measure(self, device: DeviceIdentity, threads: int, progress: Progress) -> Ceilings:
        """Measure the ceilings; ``progress(done, total, what)`` is told before each part."""

    def synchronise(self) -> None:
        """Wait until the device has done all that this process asked of it."""

    def in_use(self) -> bool:
        """Whether this process has put something on it."""

    def timer(self) -> StepTimer | None:
        """``None`` where the host's clock tells when work is done."""

    def profiler(self) -> StepProfiler | None:
        """``None`` where PyTorch's profiler does not see what runs on the device."""

    def streams(self) -> Streams | None:
        """``None`` where all that a device is given runs in one order."""

    def watch_graphs(self, replays: Callable[[], None]) -> Callable[[], None]:
        """Call ``replays`` before each launch of a graph of kernels; returns what ends that."""

    def memory(self) -> MemoryMeter | None:
        """``None`` where PyTorch's allocator does not count."""

    def capturing(self) -> bool:
        """Whether what this thread launches now goes into a graph of kernels: nothing runs."""

    def held_by_others_bytes(self) -> int | None:
        """What other processes hold of its memory, about; ``None`` if that cannot be told."""

    def card_state(self) -> CardState | None:
        """Clocks, power, heat and other processes now; ``None`` where no driver tells."""

    def random_states(self) -> tuple[Any, ...]:
        """The states of its random generators, as tensors; none where it is not in use."""

    def set_random_states(self, states: tuple[Any, ...]) -> None:
        """Put them back."""
