"""Walks of sums and the like over dimensions, along rows or along columns.

Source: PyTorch's aten/src/ATen/native/cuda/Reduce.cuh (``setReduceConfig``, ``global_reduce``).
"""

from __future__ import annotations

from math import ceil, prod

from gobrrr.prediction.kernels.walks.successive_walks import ALONG_COLUMNS, REDUCTION_TRIPS
from gobrrr.prediction.kernels.walks.walk import Machine, Walk, integers_of
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.reductions import REDUCTIONS

# Threads of a block whose threads take one column each; columns that a thread takes at the most,
# and rows that it has under way; rows that each takes at least, and those from which blocks share
# them.
_THREADS, _WARP = 512, 32
_COLUMNS, _UNDER_WAY = 4, 4
_LEAST, _MOST = 16, 256


def reduction(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Sum, mean, norm, extreme and others."""
    x = max(call.tensors, key=lambda t: t.numel)
    known = REDUCTIONS.get(call.name.partition("::")[2])
    at = 1 if known is None else known.dims_at
    dims = integers_of(call.args[at]) if len(call.args) > at else None
    rank = len(x.shape)
    if not dims or rank == 0 or (rank - 1) in [d % rank for d in dims]:
        return (Walk(trips=REDUCTION_TRIPS),)
    loads, tail = _shared_columns(x, {d % rank for d in dims}, machine)
    return (Walk(efficiency=ALONG_COLUMNS, trips=loads + REDUCTION_TRIPS, tail=tail),)


def _shared_columns(x: TensorSpec, dims: set[int], machine: Machine) -> tuple[int, int]:
    """Trips of a sum along columns that blocks share, and then of the last of them; 0 if none do.

    Each block takes some rows of some columns, leaves its sums in memory, and tells that it has;
    the last of them reads what all have left, one after the other. Nothing was fitted: 1024 rows of
    128 to 768 columns take 9.4 to 10.8 us on a recorded A100 (and those of 512 14.9), 9.3 are told.
    """
    if machine.kind != "cuda" or machine.units is None or not x.is_contiguous:
        return (0, 0)
    inner = prod(x.shape[max(dims) + 1 :])
    rows = prod(x.shape[d] for d in dims)
    vector = next(n for n in (_COLUMNS, 2, 1) if inner % n == 0)
    threads, wide = _THREADS // vector, _power_of_two(inner // vector)
    width = min(wide, _WARP)
    height = min(_power_of_two(rows), threads // width)
    width = min(wide, threads // height)
    if rows < min(height * _LEAST, _MOST) or (each := ceil(rows / height)) < _MOST:
        return (0, 0)
    groups = ceil(x.numel / rows / (width * vector))
    most = machine.units * (machine.resident_threads // (width * height))
    blocks = max(min(ceil(most / groups), ceil(each / _LEAST)), ceil(each / _MOST))
    if groups > most or blocks == 1:
        return (0, 0)
    return (ceil(each / blocks / _UNDER_WAY), ceil(blocks / height))


def _power_of_two(n: int) -> int:
    """The largest that is not above ``n``."""
    return 1 << max(0, n.bit_length() - 1)
