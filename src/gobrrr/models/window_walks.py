"""Walks of pooling and resampling: a thread for each result, which reads its neighbours.

Sources: PyTorch's CUDA kernels (aten/src/ATen/native/cuda): DilatedMaxPool2d.cu, AveragePool2d.cu,
DilatedMaxPool3d.cu, AveragePool3d.cu, UpSampleBilinear2d.cu.
"""

from __future__ import annotations

from gobrrr.models.walk import Machine, Walk
from gobrrr.timeline.ops import OpCall
from gobrrr.work.estimate import Work

# In slots of the float32 units: a division of two numbers of 32 bits is some 20 instructions (CUDA
# C++ Programming Guide, "Arithmetic Instructions"), of which a reciprocal and conversions take four
# to eight slots; an element of a window that is compared (fitted on windows of 8 in a row), or
# added: the same loop without the test for NaN, the comparison and the place in 64 bits.
_DIVISION, _COMPARED, _ADDED = 50.0, 32.0, 12.0
# Of the bandwidth, fitted on averages of 11 x 11: both are fitted programs of
# benchmarks/prediction_kernels.
_WINDOWS = 0.9
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
    """
    return (Walk(arithmetic=2, efficiency=0.8),)
