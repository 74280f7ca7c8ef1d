"""The roof of one op: the time below which no kernel on a device can go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr.devices.ceilings import Ceilings
from gobrrr.work.estimate import Work
from gobrrr.work.traffic import arithmetic_dtype

# The side of a roof that is largest, as stored per kernel.
COMPUTE_MATRIX, COMPUTE_VECTOR, MEMORY = range(3)


@dataclass(frozen=True, slots=True)
class Roof:
    """Roof of one op.

    Attributes:
        time_s: the larger of all sides, in seconds.
        regime: the side that is largest (``COMPUTE_MATRIX``, ``COMPUTE_VECTOR`` or ``MEMORY``).
        matrix_s, vector_s, memory_s: each side; 0 where the op has none of that work.
        level: the memory level whose bandwidth was used; ``""`` if no bytes move.
        limit: where neither FLOPs nor bytes decide, what does (``operator_limits``).
    """

    time_s: float
    regime: int
    matrix_s: float
    vector_s: float
    memory_s: float
    level: str
    limit: str = ""


# (bytes read, bytes written) that an op does not find in each level but the last.
Missed = Sequence[tuple[float, float]]


def roof_of(work: Work, ceilings: Ceilings, missed: Missed = ()) -> Roof | None:
    """Roof of ``work`` on a device with ``ceilings``.

    r = max(matrix FLOPs / matrix rate, vector FLOPs / vector rate, transcendentals / their rate,
    bytes / bandwidth of the smallest level that holds the op's unique bytes at its mix of reads
    and writes). ``missed`` (``residency.missed_bytes_of_step``) is what the op cannot find
    in a level, whatever would fit there: it moves at the next level's rate, and the slowest level
    decides. Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.

    Returns ``None`` if a part of the work is unknown, or has no ceiling: a roof from the known
    parts alone would pass for the whole.
    """
    if work.matrix_flops is None or work.vector_flops is None:
        return None
    if work.bytes_read is None or work.bytes_written is None:
        return None
    matrix_s = vector_s = memory_s = 0.0
    if work.matrix_flops:
        rate = ceilings.matrix_flops_per_s(work.compute_dtype)
        if rate is None:
            return None
        matrix_s = work.matrix_flops / rate
    # The softmax of a bfloat16 attention, the bias gradient of a bfloat16 convolution: PyTorch
    # computes what is not a product in float32.
    vector_dtype = arithmetic_dtype(work.compute_dtype)
    if work.vector_flops:
        rate = ceilings.vector_flops_per_s(vector_dtype)
        if rate is None:
            return None
        vector_s = work.vector_flops / rate
    if work.special:
        # Transcendentals are already weighted into vector_flops; where the device's own rate was
        # measured, the slower of the two is the roof.
        rate = ceilings.value(f"vector.{vector_dtype}.exp")
        if rate is not None:
            vector_s = max(vector_s, work.special / rate)
    moved = work.bytes_read + work.bytes_written
    level_name = ""
    if moved:
        unique = moved if work.unique_bytes is None else work.unique_bytes
        level = ceilings.level_for(unique)
        if level is None:
            return None
        memory_s = level.seconds(work.bytes_read, work.bytes_written, unique)
        level_name = level.name
        for beyond, (read, written) in zip(ceilings.levels[1:], missed):
            read = min(read, float(work.bytes_read))
            written = min(written, float(work.bytes_written))
            if read + written <= 0:
                continue
            beyond_s = beyond.seconds(read, written, max(read, written))
            if beyond_s > memory_s:
                memory_s, level_name = beyond_s, beyond.name
    time_s = max(matrix_s, vector_s, memory_s)
    if time_s == memory_s:
        regime = MEMORY
    elif time_s == matrix_s:
        regime = COMPUTE_MATRIX
    else:
        regime = COMPUTE_VECTOR
    return Roof(time_s, regime, matrix_s, vector_s, memory_s, level_name)
