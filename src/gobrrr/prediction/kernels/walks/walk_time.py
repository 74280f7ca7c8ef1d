"""Time of an op's kernels that walk through memory, one after the other."""

from __future__ import annotations

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.kernels import Kernels
from gobrrr.prediction.kernels.passes import (
    Pass,
    arithmetic_seconds,
    issued_seconds,
    seconds_of,
    traffic_seconds,
)
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.prediction.kernels.walks.sectors import sectors_over_bytes
from gobrrr.prediction.kernels.walks.walk import Machine
from gobrrr.prediction.kernels.walks.walks import walks_of
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import time_text
from gobrrr.work.estimate import Work


def time_of_walks(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients, cold: float, row_vectors: bool
) -> Kernels | None:
    """All of them; ``None`` where a ceiling is missing.

    Args:
        call: the op with its shapes.
        work: its least work.
        device: what runs it.
        c: achieved fractions.
        cold: of its bytes, those that come from memory or go there.
        row_vectors: as in ``Flags``.
    """
    written = float(work.bytes_written or 0)
    share = cold / max(float(work.bytes_moved or 0), 1.0)
    seconds = compute_s = memory_s = waiting_s = 0.0
    trips = 0
    machine = Machine(
        c.strided_fraction, device.kind, device.multiprocessors, device.cache_bytes, c.row_trips,
        c.resident_threads, row_vectors, c.norm_slots,
    )  # fmt: skip
    walks = walks_of(call, work, machine)
    for at, walk in enumerate(walks):
        # What is fetched around elements that lie apart is as cold as they are. Later kernels may
        # read a copy without holes.
        read = float(work.bytes_read or 0) * (1.0 if at else sectors_over_bytes(call, work))
        traffic = read * walk.reads + written * walk.writes
        # The first read is as cold as the op; a second one of what the kernel has just read comes
        # from the cache, unless the walk says that it cannot.
        first = read * min(walk.reads, walk.cold_reads)
        first += written * min(walk.writes, walk.cold_writes)
        once = Pass(
            bytes_moved=traffic,
            cold_bytes=share * first,
            vector_flops=(work.vector_flops or 0.0) * walk.arithmetic,
            special=work.special * min(walk.arithmetic, 1.0),
            dtype=work.compute_dtype, efficiency=walk.efficiency, programs=walk.programs,
            indexed=walk.indexed, trips=walk.trips, slots=walk.slots,
            converted=walk.converted, issued=walk.issued, tail=walk.tail,
            reread_bytes=read * max(0.0, walk.reads - max(1.0, walk.cold_reads)),
        )  # fmt: skip
        if (whole_s := seconds_of(once, device, c)) is None:
            return None
        seconds += whole_s
        arithmetic_s = arithmetic_seconds(once, device, c) or 0.0
        arithmetic_s = max(arithmetic_s, issued_seconds(once, device, c))
        traffic_s = traffic_seconds(once, device, c) or 0.0
        compute_s += arithmetic_s
        memory_s += traffic_s
        trips += walk.trips + walk.tail
        waiting_s += max(0.0, walk.trips * c.trip_s - max(arithmetic_s, traffic_s))
        waiting_s += walk.tail * c.trip_s
    how = "a pass over memory" if len(walks) == 1 else f"{len(walks)} passes over memory"
    if trips:
        chain = "a trip" if trips == 1 else f"{trips:,} dependent trips"
        how += f", {chain} to memory of {time_text(c.trip_s)}"
        how += f" ({time_text(trips * c.trip_s)})" if trips > 1 else ""
    return Kernels(seconds, compute_s, memory_s, len(walks), how, waiting_s=waiting_s)
