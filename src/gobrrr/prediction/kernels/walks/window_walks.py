"""Walks of pooling and resampling: a thread for each result, which reads its neighbours.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda): DilatedMaxPool2d.cu, AveragePool2d.cu,
DilatedMaxPool3d.cu, AveragePool3d.cu, UpSampleBilinear2d.cu, UpSampleLinear1d.cu,
UpSampleBicubic2d.cu, UpSampleTrilinear3d.cu, GridSampler.cu.
"""

from __future__ import annotations

from math import ceil, prod

from gobrrr.prediction.kernels.walks.walk import Machine, Walk
from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.pooling import adds_of_resampling, adds_of_sampling

# In slots of the float32 units: a division of two numbers of 32 bits is some 20 instructions (CUDA
# C++ Programming Guide, "Arithmetic Instructions"), of which a reciprocal and conversions take four
# to eight slots; an element of a window that is compared (fitted on windows of 8 in a row), or
# added: the same loop without the test for NaN, the comparison and the place in 64 bits.
_DIVISION, _COMPARED, _ADDED = 50.0, 32.0, 12.0
# Of the bandwidth, fitted on averages of 11 x 11: both are fitted programs of
# benchmarks/prediction_kernels.
_WINDOWS = 0.9
# Of the bandwidth: atomic additions read and write a whole sector each. They take place in the
# cache, in words of at least 4 bytes (``fastAtomicAdd`` adds two halves at a time): 33.6 million in
# 214 us and 12.6 million in 87 us on an H20 (pull request 5760 of flagos-ai/FlagGems, trilinear),
# 16.8 million in 370 us on an RTX 2070 SUPER (48675 of pytorch/pytorch).
ATOMIC = 0.4
_LEAST_WORD = 4
# Multiples of an op's arithmetic where only that is known.
_ADDRESSES = 12.0


def window(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """Pooling. A window is read through the first-level cache.

    A thread finds its place by divisions: three in 1-D and 2-D, one in 3-D, whose blocks know their
    row and column. For each element it loads, adds or compares, counts, and computes an address.
    """
    name = call.name.partition("::")[2]
    results = max((t.numel for t in call.outputs or ()), default=0)
    if not name.startswith(("max_pool", "avg_pool")) or not results:
        return (Walk(arithmetic=_ADDRESSES, efficiency=_WINDOWS),)
    divisions = 1 if "pool3d" in name else 3
    element = _COMPARED if name.startswith("max") else _ADDED
    slots = results * _DIVISION * divisions + element * (work.vector_flops or 0.0)
    return (Walk(slots=slots, efficiency=_WINDOWS),)


def resample(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """A thread per position of an image computes where it reads from once, for all channels and
    images; the reads of neighbours come from the first-level cache.

    In 1-D and 3-D it goes through them one after the other: 86 us for 128 of 8 x 64 x 64 results on
    an H20 (pull request 3555 of flagos-ai/FlagGems).
    """
    results = call.outputs[0] if call.outputs else None
    trips = 0 if results is None else _in_turn(call, results, machine)
    return (Walk(arithmetic=2, efficiency=0.8, trips=trips),)


def resample_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """The result is zeroed, then a thread for each gradient adds it to the elements it came from.

    Where a thread goes through images and channels it may not read the next before it has added
    the last.
    """
    grad = call.tensors[0]
    trips = _in_turn(call, grad, machine)
    return _zeroed_and_added(adds_of_resampling(call), grad, work, trips)


def _in_turn(call: OpCall, fine: TensorSpec, machine: Machine) -> int:
    """Trips of a thread that goes through images and channels: linear in 1-D and 3-D.

    ``fine``: what it has a thread for each position of.
    """
    images = prod(fine.shape[:2]) if "linear1d" in call.name or "linear3d" in call.name else 0
    return images * _rounds(fine.numel // images, machine) if images else 0


def sample(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """A thread for each point of the grid, which goes through the channels one after the other.

    111 us for 256 channels of 16 x 16, 37 us for 64 of 32 x 32 on an H20 (pull request 4032 of
    flagos-ai/FlagGems).
    """
    x, grid = call.tensors[:2]
    return (Walk(trips=x.shape[1] * _rounds(_points(grid), machine)),)


def sample_backward(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """As forward, and for each channel two trips: its gradient, then the input after the adding.

    61 us for 32 channels, 32 us for 16 on an H20, in 3-D (pull request 5287 of FlagGems).
    """
    grad, grid = call.tensors[0], call.tensors[2]
    trips = 2 * grad.shape[1] * _rounds(_points(grid), machine)
    return _zeroed_and_added(adds_of_sampling(call), grad, work, trips)


def _points(grid: TensorSpec) -> int:
    return prod(grid.shape[:-1])


def _rounds(threads: int, machine: Machine) -> int:
    """How often the device fills with that many threads."""
    if machine.units is None:
        return 1
    return max(1, ceil(threads / (machine.resident_threads * machine.units)))


def _zeroed_and_added(adds: float, grad: TensorSpec, work: Work, trips: int) -> tuple[Walk, ...]:
    if not adds:
        return (Walk(trips=trips),)
    moved = 2.0 * max(grad.item_size_bytes or _LEAST_WORD, _LEAST_WORD) * adds
    writes = max(1.0, moved / max(float(work.bytes_written or 0), 1.0))
    return (Walk(reads=0.0, arithmetic=0.0), Walk(writes=writes, efficiency=ATOMIC, trips=trips))
