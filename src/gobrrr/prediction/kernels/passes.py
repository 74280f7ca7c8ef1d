"""The kernels of an op, each as a pass over memory with arithmetic beside it."""

from __future__ import annotations

from dataclasses import dataclass

from gobrrr.prediction.kernels.architectures import of_architecture
from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.work.traffic import arithmetic_dtype


@dataclass(frozen=True, slots=True)
class Pass:
    """One kernel: what it moves and computes, besides its fixed cost.

    Attributes:
        bytes_moved: through the last-level cache, in bytes.
        cold_bytes: of these, the bytes that come from memory or go there.
        vector_flops: outside the matrix unit.
        special: evaluations of a transcendental.
        dtype: dtype of its inputs.
        seconds: time that a model of its own gave (a tiled product); 0 where bytes and arithmetic
            decide.
        efficiency: of the bandwidth, for its way of walking through memory (1: a stream).
        programs: independent pieces of work it has, at most one multiprocessor each; ``None``
            where there are enough for all.
        indexed: elements whose addresses are computed one by one.
        trips: trips to memory that depend on each other, beyond the first.
        tail: those of its last block, once all others have ended.
        reread_bytes: of ``bytes_moved``, those that a kernel reads again when it has read all of a
            row: they wait for the first read, and come from the cache.
        slots: instructions of the float32 units.
        converted: elements of a stream that are loaded or stored one by one, to convert them.
        issued: instructions of a stream on any unit, beside those.
    """

    bytes_moved: float = 0.0
    cold_bytes: float = 0.0
    vector_flops: float = 0.0
    special: float = 0.0
    dtype: str = "float32"
    seconds: float = 0.0
    efficiency: float = 1.0
    programs: float | None = None
    indexed: float = 0.0
    trips: int = 0
    reread_bytes: float = 0.0
    slots: float = 0.0
    converted: float = 0.0
    issued: float = 0.0
    tail: int = 0


# Instructions of any kind that a multiprocessor issues beside each of its float32 units: 4 warps a
# cycle, and two instructions of each on Pascal (NVIDIA's white papers of these architectures).
_ISSUED = {"Pascal": 2.0, "Volta": 2.0, "Turing": 2.0, "Ampere GA100": 2.0}
# Trips to memory that a kernel makes before its stream runs and after it.
_TRIPS_AROUND = 3


def cache_bytes_per_s(device: TargetDevice, c: Coefficients) -> float | None:
    """Bandwidth between the last-level cache and the multiprocessors, as reached."""
    levels = device.ceilings.levels
    if not levels:
        return None
    dram = levels[-1].bandwidth_bytes_per_s(0.0)
    if len(levels) > 1 and levels[-2].capacity_bytes:
        return max(levels[-2].bandwidth_bytes_per_s(0.0) * c.cache_fraction, dram)
    return dram * c.cache_over_dram


def dram_bytes_per_s(device: TargetDevice, c: Coefficients) -> float | None:
    """Bandwidth of the memory, as reached by a long stream."""
    levels = device.ceilings.levels
    return levels[-1].bandwidth_bytes_per_s(0.0) * c.dram_fraction if levels else None


def reach(programs: float | None, device: TargetDevice, c: Coefficients) -> float:
    """The share of the memory's bandwidth that ``programs`` pieces of work can draw, up to 1.

    Few multiprocessors cannot keep enough requests in flight (Little's law): each draws at the
    most ``lone_share_of_dram`` times its equal share.
    """
    if programs is None or not device.multiprocessors:
        return 1.0
    return min(1.0, programs * c.lone_share_of_dram / device.multiprocessors)


def seconds_of(work: Pass, device: TargetDevice, c: Coefficients) -> float | None:
    """Time of one kernel without its fixed cost; ``None`` where a ceiling is missing.

    The larger of arithmetic and traffic, since a kernel that has enough threads does one while it
    waits for the other, and ``overlap_loss`` of the lesser. A few dependent trips to memory come on
    top, at the kernel's start and end; a long chain of them is what the traffic waits for.
    """
    arithmetic_s = arithmetic_seconds(work, device, c)
    memory_s = traffic_seconds(work, device, c)
    if arithmetic_s is None or memory_s is None:
        return None
    lost_s = c.overlap_loss * min(arithmetic_s, memory_s)
    around_s = min(work.trips, _TRIPS_AROUND) * c.trip_s
    both_s = max(arithmetic_s, memory_s) + lost_s
    if issued_s := issued_seconds(work, device, c):
        # In float32, elements of a GELU take as long as those of a ReLU on all five cards in
        # ``coefficients.KERNELS`` (5.7 ps on an A100): longer traffic hides instructions in full.
        both_s = max(both_s, issued_s + c.overlap_loss * memory_s)
    return max(both_s + around_s, work.trips * c.trip_s) + work.tail * c.trip_s


def issued_seconds(work: Pass, device: TargetDevice, c: Coefficients) -> float:
    """Time of what a stream computes beside its FLOPs; 0 where no rate is known."""
    found = 0.0
    if work.issued and (rate := device.ceilings.vector_flops_per_s("float32")):
        # A fused multiply-add is one instruction and two FLOPs.
        rate *= of_architecture(_ISSUED, device.architecture) or 1.0
        found += 2 * work.issued / rate
    if work.converted and (rate := device.ceilings.vector_flops_per_s("int32")):
        found += work.converted * c.index_instructions / rate
    return found


def arithmetic_seconds(work: Pass, device: TargetDevice, c: Coefficients) -> float | None:
    """Time of the arithmetic and of computing addresses; ``None`` where a ceiling is missing."""
    arithmetic_s = work.seconds
    dtype = arithmetic_dtype(work.dtype)
    if work.vector_flops:
        rate = device.ceilings.vector_flops_per_s(dtype)
        if rate is None:
            return None
        arithmetic_s = max(arithmetic_s, work.vector_flops / (rate * c.vector_fraction))
    if work.slots:
        rate = device.ceilings.vector_flops_per_s("float32")
        if rate is not None:
            # A fused multiply-add is one instruction and two FLOPs.
            arithmetic_s = max(arithmetic_s, 2 * work.slots / rate)
    if work.special:
        rate = device.ceilings.value(f"vector.{dtype}.exp")
        if rate is not None:
            arithmetic_s = max(arithmetic_s, work.special / rate)
    if work.indexed and c.index_instructions:
        rate = device.ceilings.vector_flops_per_s("int32")
        if rate is not None:
            arithmetic_s = max(arithmetic_s, work.indexed * c.index_instructions / rate)
    return arithmetic_s


def traffic_seconds(work: Pass, device: TargetDevice, c: Coefficients) -> float | None:
    """Time of the bytes; ``None`` where a bandwidth is missing."""
    if not work.bytes_moved:
        return 0.0
    dram, cache = dram_bytes_per_s(device, c), cache_bytes_per_s(device, c)
    if dram is None or cache is None:
        return None
    share = work.efficiency * reach(work.programs, device, c)
    once_s = max(work.cold_bytes / dram, (work.bytes_moved - work.reread_bytes) / cache)
    return (once_s + c.reread_exposed * work.reread_bytes / cache) / share
