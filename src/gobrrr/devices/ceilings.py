"""The fastest a device can do each kind of work, and how each number was got."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

How = Literal["measured", "datasheet", "given"]
# Told (parts done, parts in all, what comes next) while ceilings are measured.
Progress = Callable[[int, int, str], None]
# How a notice begins that says so.
BUSY = "the machine was busy while its ceilings were measured"


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One ceiling.

    Attributes:
        name: dotted, see ``Ceilings``.
        value: in ``unit``.
        unit: ``FLOP/s``, ``op/s``, ``B/s``, ``B`` or ``s``.
        how: measured here, from a data sheet, or given by the user.
        source: for a measurement the shape or size that reached it; for a data sheet its URL.
        sm_hz: the clock of a GPU's multiprocessors at the end of the measurement; ``None`` if it
            was not read.
    """

    name: str
    value: float
    unit: str
    how: How
    source: str
    sm_hz: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryLevel:
    """One level of the memory hierarchy, from the smallest.

    Attributes:
        name: ``l2``, ``l3``, ``dram``.
        capacity_bytes: what it holds; ``None`` for the last level (no limit).
        rates: (fraction of the bytes that are writes, bytes/s), sorted by fraction. Between two
            measured mixes time per byte is interpolated linearly; a data sheet has one entry,
            used for every mix.
        update_bytes_per_s: rate of an update in place (half read, half written, the same
            bytes); ``None`` where it was not measured. It is above that of a copy: the store finds
            its line in the cache, where a copy's must fetch it first.
    """

    name: str
    capacity_bytes: int | None
    rates: tuple[tuple[float, float], ...]
    update_bytes_per_s: float | None = None

    def seconds(self, bytes_read: float, bytes_written: float, unique_bytes: float) -> float:
        """Least seconds for reads and writes of ``unique_bytes`` different bytes.

        Bytes counted twice (``bytes_read + bytes_written - unique_bytes``, at most the lesser of
        the two) are updated in place and go at that rate; the rest at the rate of its mix.
        """
        moved = bytes_read + bytes_written
        if moved <= 0:
            return 0.0
        rate = self.update_bytes_per_s
        updated = min(max(moved - unique_bytes, 0.0), bytes_read, bytes_written)
        if rate is None or not updated:
            return moved / self.bandwidth_bytes_per_s(bytes_written / moved)
        rest = moved - 2 * updated
        seconds = 2 * updated / rate
        if rest > 0:
            seconds += rest / self.bandwidth_bytes_per_s((bytes_written - updated) / rest)
        return seconds

    def bandwidth_bytes_per_s(self, write_fraction: float) -> float:
        """Bytes per second for a mix with ``write_fraction`` (0 to 1) of its bytes written."""
        previous = self.rates[0]
        if write_fraction <= previous[0]:
            return previous[1]
        for point in self.rates[1:]:
            if write_fraction <= point[0]:
                share = (write_fraction - previous[0]) / (point[0] - previous[0])
                return 1.0 / ((1 - share) / previous[1] + share / point[1])
            previous = point
        return previous[1]


@dataclass(frozen=True)
class Ceilings:
    """All ceilings of one device.

    ``rows`` by name. Names in use:

    - ``matrix.<dtype>`` FLOP/s (``matrix.tf32`` for float32 inputs with TF32 allowed;
      ``matrix.float8_e4m3fn.precise`` with partial sums kept in float32),
    - ``vector.<dtype>`` FLOP/s with fused multiply-add, ``vector.<dtype>.multiply`` without,
      ``vector.<dtype>.exp`` evaluations/s (``op/s``) of a transcendental,
    - ``memory.<level>.{read,copy,write,triad,update,copy_nontemporal}`` B/s,
      ``memory.<level>.capacity`` B, with level ``l1``, ``l2``, ``l3``, ``dram``;
      ``...read.1thread`` for one thread,
    - ``kernel.fixed`` s (the shortest kernel), ``launch.latency`` s, ``synchronise`` s,
      ``copy.h2d``, ``copy.d2h`` B/s, ``host.python_adds`` op/s, ``host.dispatches`` op/s,
      ``parallel.fork_join`` s, ``page_fault`` s, ``page_fault.size`` B,
    - ``operator.<name>``: elements/s of PyTorch's own operators on a CPU (``cpu.operators``), of
      data in its caches.
    """

    device: str
    rows: Mapping[str, Ceiling]
    levels: tuple[MemoryLevel, ...]
    notices: tuple[str, ...] = field(default=())
    # Whether some are missing only because memory was taken: another time they can be measured.
    short_of_memory: bool = False
    # Why they are not what the device can do at other times, as a clause; empty if they are.
    disturbed: str = ""

    @property
    def busy(self) -> bool:
        """Whether other programs had the machine while they were measured."""
        return any(notice.startswith(BUSY) for notice in self.notices)

    def value(self, name: str) -> float | None:
        """The ceiling's value in its unit; ``None`` if there is none."""
        row = self.rows.get(name)
        return None if row is None else row.value

    def matrix_flops_per_s(self, dtype: str) -> float | None:
        """Rate of the best matrix path for ``dtype`` inputs; ``None`` if there is no ceiling."""
        return self.value(f"matrix.{dtype}")

    def vector_flops_per_s(self, dtype: str) -> float | None:
        """Rate of the vector path, fused multiply-add counted as two; ``None`` if unknown."""
        return self.value(f"vector.{dtype}")

    def level_for(self, unique_bytes: float) -> MemoryLevel | None:
        """The smallest level that holds ``unique_bytes``; ``None`` if no level is known."""
        for level in self.levels:
            if level.capacity_bytes is None or unique_bytes <= level.capacity_bytes:
                return level
        return self.levels[-1] if self.levels else None

    @property
    def kernel_fixed_s(self) -> float | None:
        """Time of a kernel that does nothing, in seconds."""
        return self.value("kernel.fixed")
