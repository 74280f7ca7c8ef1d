"""Walks of ops that sort or choose.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda): Sort.cu, TensorTopK.cu,
SortingRadixSelect.cuh; aten/src/ATen/native/Distributions.cpp (``multinomial_out``).
"""

from __future__ import annotations

from gobrrr.models.successive_walks import BINARY, REDUCTION_TRIPS, Kernel, in_turn
from gobrrr.models.walk import Machine, Walk, dimension_of
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
