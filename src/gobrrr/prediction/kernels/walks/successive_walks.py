"""Walks of ops that PyTorch runs as several kernels, with temporary tensors between them.

Sources: PyTorch's aten/src/ATen/native/ReduceOps.cpp (``logsumexp_out_impl``),
TensorAdvancedIndexing.cpp (``masked_fill``, ``count_nonzero_cuda``), PadNd.cpp
(``constant_pad_nd``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2, prod
from typing import NamedTuple

from gobrrr.prediction.kernels.walks.walk import ONE, Machine, Walk, integers_of
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

# What a kernel that reduces everything waits for: partial sums meet in memory.
REDUCTION_TRIPS = 3
# Of the bandwidth, for sums along columns: the threads of a warp take neighbouring columns, so
# lines are used whole, but rows are summed by blocks that then meet through memory.
ALONG_COLUMNS = 0.85
# Kernels of a log-sum-exp over its results: ``abs``, ``== INFINITY``, ``masked_fill_``, ``log_``,
# ``add_``, which read and write two tensors of their size each, about.
_OF_RESULTS = (Walk(0.0, 2.0, 0.0),) * 5
# Bits of the length that one kernel of cuFFT transforms in shared memory: 8192 points of 8 bytes.
_POINTS_BITS = 13
# cuFFT has building blocks for primes below this (its documentation, "Accuracy and Performance").
_PRIMES = 128


class Kernel(NamedTuple):
    """Tensors of the op's size that a kernel reads and writes, and the rest as of ``Walk``."""

    reads: float
    writes: float = 1.0
    indexed: float = 0.0
    efficiency: float = 1.0
    trips: int = 0


UNARY, BINARY = Kernel(1.0), Kernel(2.0)


def in_turn(
    size: float, work: Work, machine: Machine, kernels: Sequence[Kernel], *, reduced: Kernel | None
) -> tuple[Walk, ...]:
    """Kernels one after the other over tensors of ``size`` bytes.

    Of what lies between them the cache keeps half of its size; the rest comes from memory and goes
    there. The op's inputs, each at its first read, and the last result are as cold as the op says.
    ``reduced``: what reads the last of these tensors and writes the op's smaller result.
    """
    read, written = float(work.bytes_read or 0), float(work.bytes_written or 0)
    if not read or not written or not size:
        return ONE
    lost = max(0.0, 1.0 - machine.cache_bytes / 2 / size)
    walks = []
    unread = read
    for at, kernel in enumerate(kernels):
        last = at == len(kernels) - 1 and reduced is None
        reads, writes = kernel.reads * size, 0.0 if last else kernel.writes * size
        first = min(reads, unread)
        unread -= first
        walks.append(
            Walk(
                (reads + lost * writes) / read,
                1.0 if last else (1.0 - lost) * writes / written,
                1.0 / len(kernels),
                kernel.efficiency,
                indexed=kernel.indexed,
                trips=kernel.trips,
                cold_reads=(first + lost * (reads - first + writes)) / read,
            )
        )
    if reduced is not None:
        walks.append(
            Walk(
                size / read, arithmetic=0.0, efficiency=reduced.efficiency, trips=reduced.trips,
                cold_reads=lost * size / read,
            )
        )  # fmt: skip
    return tuple(walks)


def log_sum_exp(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """``amax``, ``self - maxes``, ``exp_``, ``sum``, and five kernels over the results."""
    x = call.tensors[0]
    dims, rank = integers_of(call.args[1]), len(x.shape)
    columns = bool(dims) and (rank - 1) not in [d % rank for d in dims or ()]
    reduction = Kernel(
        1.0, 0.0, efficiency=ALONG_COLUMNS if columns else 1.0, trips=REDUCTION_TRIPS
    )
    size = float(x.numel * (x.item_size_bytes or 4))
    kernels = [reduction, Kernel(1.0, indexed=float(x.numel)), UNARY]
    return (*in_turn(size, work, machine, kernels, reduced=reduction), *_OF_RESULTS)


def masked_fill(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """The input is cloned, and the clone filled in place.

    What has another shape than the clone has its addresses computed one by one.
    """
    x, mask = call.tensors[0], call.tensors[1]
    shape = call.outputs[0].shape if call.outputs else x.shape
    elements, item = float(prod(shape)), x.item_size_bytes or 4
    of_mask = mask.unique_elements * (mask.item_size_bytes or 1) / (elements * item)
    clone = Kernel(x.numel / elements, indexed=elements if x.shape != shape else 0.0)
    fill = Kernel(1.0 + of_mask, indexed=elements if mask.shape != shape else 0.0)
    return in_turn(elements * item, work, machine, [clone, fill], reduced=None)


def count_nonzero(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """``(x != 0).sum(dim)``: a byte for each element is written and read."""
    x = call.tensors[0]
    read, written = float(work.bytes_read or 0), float(work.bytes_written or 0)
    if not read or not written:
        return ONE
    kept = min(1.0, machine.cache_bytes / 2 / max(1, x.numel))
    return (
        Walk(
            1.0 + (1.0 - kept) * x.numel / read, kept * x.numel / written,
            cold_reads=1.0 + (1.0 - kept) * x.numel / read,
        ),
        Walk(
            x.numel / read, arithmetic=0.0, trips=REDUCTION_TRIPS,
            cold_reads=(1.0 - kept) * x.numel / read,
        ),
    )  # fmt: skip


def padding(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """``constant_pad_nd``: the whole result is filled, then the input copied into a part of it.

    The part's addresses are computed one by one.
    """
    x = call.tensors[0]
    inside = x.numel * (x.item_size_bytes or 4) / max(1, work.bytes_written or 0)
    return (
        Walk(0.0, 1.0, 0.0), Walk(1.0, min(1.0, inside), 0.0, indexed=float(x.numel)),
    )  # fmt: skip


def fourier(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """A kernel for each dimension, and several for one that no multiprocessor can hold."""
    tensors = (*call.tensors[:1], *(call.outputs or ()))
    dims = integers_of(call.args[1]) or ()
    lengths = [max(t.shape[dim] for t in tensors) for dim in dims]
    kernels = [kernel for length in lengths for kernel in _of_transform(length)]
    if len(kernels) <= 1:
        return ONE
    size = float(max(work.bytes_read or 0, work.bytes_written or 0))
    steps = sum(log2(max(2, length)) for length in lengths)
    more = sum(_steps(length) for length in lengths) / steps
    walks = in_turn(size, work, machine, kernels, reduced=None)
    return tuple(replace(walk, arithmetic=walk.arithmetic * more) for walk in walks)


def _padded(length: int) -> int | None:
    """Points of the transforms in Bluestein's algorithm; ``None`` where cuFFT does without."""
    return None if _largest_prime(length) < _PRIMES else 1 << (2 * length - 2).bit_length()


def _steps(length: int) -> float:
    """Arithmetic of a transform, in the steps of radix 2 that each of its points takes."""
    padded = _padded(length)
    if padded is None:
        return log2(max(2, length))
    return 2 * padded / length * log2(padded)


def _of_transform(length: int) -> list[Kernel]:
    """The kernels of a transform along one dimension.

    With a prime factor from 128 cuFFT takes Bluestein's algorithm: a convolution, by a transform
    there and one back, of at least 2 n - 1 points (a power of two, here), in whose kernels the
    products beside them are taken to be.
    """
    padded = _padded(length)
    if padded is None:
        return [UNARY] * ceil(log2(max(2, length)) / _POINTS_BITS)
    grown = padded / length
    parts = 2 * ceil(log2(padded) / _POINTS_BITS)
    return [
        Kernel(1.0 if at == 0 else grown, 1.0 if at == parts - 1 else grown) for at in range(parts)
    ]


def _largest_prime(n: int) -> int:
    found, factor = 1, 2
    while factor * factor <= n:
        if n % factor:
            factor += 1
        else:
            found, n = factor, n // factor
    return max(found, n)
