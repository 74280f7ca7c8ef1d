"""Walks of ops that sort or choose.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda): Sort.cu, TensorTopK.cu,
SortingRadixSelect.cuh, Sorting.cu, Sorting.cpp (``median_impl``), Randperm.cu, TensorCompare.cpp
(``isin_default_kernel_gpu``); aten/src/ATen/native/Distributions.cpp (``multinomial_out``).
"""

from __future__ import annotations

from math import ceil, log, log2

from gobrrr.prediction.kernels.walks.successive_walks import (
    BINARY,
    REDUCTION_TRIPS,
    Kernel,
    in_turn,
)
from gobrrr.prediction.kernels.walks.walk import Machine, Walk, dimension_of
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

# Most rows, and the length from which on they are divided among blocks (``should_use_multiblock``).
_DIVIDED = ((20, 20_000), (40, 10_000), (80, 8_000), (199, 5_000), (799, 3_000), (4_000, 800))
_DIVIDED_OF_MANY = 400
# A kernel over counts, or over a few results.
_SMALL = Walk(reads=0, writes=0, arithmetic=0)
# Kernels over the blocks' counts for each byte of the key: 21 kernels in all for one of 4 bytes.
_OF_COUNTS = 4
# ``< INFINITY``, ``>= 0``, ``&`` and ``== 0``, ``any``, and an assertion for either.
_CHECKS = 7
# Of a radix select, for an element in a pass: for each of 4 digits a comparison, a vote, a count of
# bits and an addition (128, 64, 16 and 128 a clock: CUDA C++ Programming Guide, "Arithmetic
# Instructions"), and a load, a mask, a field of bits and the loop, about 8.
_SLOTS_OF_DIGITS = 4 * (1 + 2 + 8 + 1) + 8
_MOST_THREADS, _WARP = 1024, 32
# Collisions of random keys are to be unlikelier than this (the note in Randperm.cu).
_COLLISIONS = log(0.9) * 12


def sort(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Radix sort, 8 bits a pass, keys and 8-byte positions (``cub::DeviceRadixSort``)."""
    item = call.tensors[0].item_size_bytes or 4
    return tuple(Walk(reads=1, efficiency=0.6) for _ in range(item + 1))


def top_k(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Radix select: by one block a row, or by many where rows are few and long."""
    x = call.tensors[0]
    dim = dimension_of(call.args[2], len(x.shape)) if len(call.args) > 2 else -1
    length = max(x.shape[dim] if x.shape else 1, 1)
    rows = x.numel // length
    if call.name.endswith("topk") and machine.kind == "cuda" and _divided(rows, length):
        # A pass for each byte of the key, and one that collects what was chosen.
        item = x.item_size_bytes or 4
        a_byte = (Walk(writes=0), *(_SMALL,) * _OF_COUNTS)
        return (*a_byte * item, Walk())
    # One block reads its row once for every 2 bits in the worst case, about five times.
    return (Walk(reads=5, arithmetic=5, programs=float(rows)), Walk(reads=0, writes=1))


def _divided(rows: int, length: int) -> bool:
    least = next((least for most, least in _DIVIDED if rows <= most), _DIVIDED_OF_MANY)
    return length >= least


def multinomial(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Without replacement: the checks, then the largest of probabilities over random numbers.

    With replacement, for more than one sample: one walk that adds them up, and a search.
    """
    x = call.tensors[0]
    count, replaced = call.args[1], len(call.args) > 2 and call.args[2] is True
    if replaced and count != 1:
        return (Walk(), Walk(reads=0))
    size = float(x.numel * (x.item_size_bytes or 4))
    check, random = Kernel(1.0, 0.0, trips=REDUCTION_TRIPS), Kernel(0.0)
    # The largest, the smallest, the sum; then ``exponential_`` and the division by it.
    kernels = [check, check, check, random, BINARY]
    chosen = Kernel(1.0, trips=REDUCTION_TRIPS)
    return (*in_turn(size, work, machine, kernels, reduced=chosen), *(_SMALL,) * _CHECKS)


def select(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """``median``, ``nanmedian``, ``kthvalue``: a block for each row, 2 bits a pass.

    It looks for NaNs, halves the digits until one number is left (of n that differ in their first
    log2 n bits, the fewest passes), and finds where that stands; each waits for the last. A median
    of all is the middle of a sort.
    """
    x = call.tensors[0]
    item = x.item_size_bytes or 4
    at = 2 if call.name.endswith("kthvalue") else 1
    if len(call.args) <= at:
        both_ways = 2.0 + 8.0 / item
        sorts = (Walk(both_ways, 0.0, 0.0, 0.6, cold_reads=both_ways),) * (item + 1)
        return (*sorts, *(_SMALL,) * 2)
    length = max(x.shape[dimension_of(call.args[at], len(x.shape))] if x.shape else 1, 1)
    rows = x.numel // length
    digits = ceil(log2(max(length, 2)) / 2)
    threads = min(_MOST_THREADS, ceil(length / _WARP) * _WARP)
    held = max(1, machine.resident_threads // threads) * (machine.units or rows)
    trips = (digits + 2) * ceil(rows / held)
    slots = float(_SLOTS_OF_DIGITS * digits * x.numel)
    return (Walk(digits + 2, programs=float(rows), trips=trips, slots=slots),)


def permutation(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """``randperm``: numbers from 0 on, sorted by random keys; then those with equal keys shuffled.

    Keys have as many bits as make collisions unlikely, in 4 bytes or in 8.
    """
    size = work.bytes_written or 0
    n = (call.outputs or ())[0].numel
    if not n:
        return (_SMALL,)
    bits = min(64, ceil(log2(n - (6.0 * n * n + 1) / _COLLISIONS)))
    keys = (4 if bits <= 32 else 8) * n / size
    passes = 2 * (1 + keys)
    a_pass = Walk(0.0, passes, 0.0, 0.6, cold_writes=passes)
    return (Walk(), Walk(writes=keys), *(a_pass,) * ceil(bits / 8), Walk(writes=keys))


def membership(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """``isin`` of few numbers: a byte for each comparison is written, and read for ``any``."""
    if len(call.tensors) < 2:
        return (Walk(),)
    n, tested = call.tensors[0].numel, call.tensors[1].numel
    # Many are sorted (``isin_sorting``), which is not known further: at least one pass.
    if not n or not tested or tested >= int(10 * n**0.145):
        return (Walk(),)
    size = float(n * tested)
    compare = Kernel(float(work.bytes_read or 0) / size, indexed=size)
    chosen = Kernel(1.0, trips=REDUCTION_TRIPS)
    return (*in_turn(size, work, machine, [compare], reduced=chosen), _SMALL)
