"""Walks of distances between rows: a block of threads for each pair, however short the rows are.

Source: PyTorch's aten/src/ATen/native/cuda/DistanceKernel.cu (``cdist_kernel_cuda_impl``,
``pdist_kernel_cuda_impl``): as many blocks of 256 threads as there are results; each thread divides
to find its rows, takes every 256th element, and the block adds up what its threads have. Only
``cdist`` of p = 2 and more than 25 rows is a product instead (``_euclidean_dist``).
"""

from __future__ import annotations

from gobrrr.prediction.kernels.walks.walk import ONE, Machine, Walk
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

# In slots of the float32 units (CUDA C++ Programming Guide, "Arithmetic Instructions"): three
# divisions of some 20 instructions, as of 32 bits, the least; 5 shuffles (32 a clock, 4 slots) and
# additions that reduce a warp; beginnings and ends of the rows, the barrier and its test, about 15.
_OF_A_THREAD = 3 * 20 + 5 * (4 + 1) + 15
# Two loads, a difference, an absolute value, an addition, two addresses and a test.
_OF_AN_ELEMENT = 8
_THREADS = 256


def distances(call: OpCall, work: Work, machine: Machine) -> tuple[Walk, ...]:
    """``_cdist_forward``, ``_pdist_forward``."""
    pairs = sum(spec.numel for spec in call.outputs or ())
    if not pairs or machine.kind not in ("cuda", "hip"):
        return ONE
    width = call.tensors[0].shape[-1]
    return (Walk(slots=float(pairs * (_THREADS * _OF_A_THREAD + width * _OF_AN_ELEMENT))),)
