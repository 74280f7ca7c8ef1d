"""Fourier transforms: 5 n log2 n FLOPs for n complex points, half for real ones.

The convention of FFTW's benchmarks (https://www.fftw.org/speed/method.html), which is the leading
term of the radix-2 algorithm.
"""

from __future__ import annotations

from math import log2

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import formula
from gobrrr.work.traffic import account, arithmetic_dtype, destinations, integers, need, product
from gobrrr.work.traits import describe

_COMPLEX_OF = {"float16": "complex32", "float32": "complex64", "float64": "complex128"}
_REAL_OF = {complex_: real for real, complex_ in _COMPLEX_OF.items()}


@formula("aten::_fft_c2c")
def complex_to_complex(call: OpCall) -> Work:
    """``(self, dim, normalization, forward)``."""
    x = need(call, 0)
    return _transform(call, x, TensorSpec(x.shape, x.dtype), x.shape, 5.0)


@formula("aten::_fft_r2c")
def real_to_complex(call: OpCall) -> Work:
    """``(self, dim, normalization, onesided)``: the last of ``dim`` halved if one-sided."""
    x = need(call, 0)
    shape = list(x.shape)
    dims = integers(call.args[1])
    if dims and call.args[3] is True:
        shape[dims[-1]] = shape[dims[-1]] // 2 + 1
    out = TensorSpec(tuple(shape), _COMPLEX_OF.get(x.dtype, ""))
    return _transform(call, x, out, x.shape, 2.5)


@formula("aten::_fft_c2r")
def complex_to_real(call: OpCall) -> Work:
    """``(self, dim, normalization, last_dim_size)``."""
    x = need(call, 0)
    shape = list(x.shape)
    dims, size = integers(call.args[1]), call.args[3]
    if dims and isinstance(size, int):
        shape[dims[-1]] = size
    out = TensorSpec(tuple(shape), _REAL_OF.get(x.dtype, ""))
    return _transform(call, x, out, tuple(shape), 2.5)


def _transform(
    call: OpCall, x: TensorSpec, out: TensorSpec, points: tuple[int, ...], weight: float
) -> Work:
    dims = integers(call.args[1])
    if not dims:
        raise ValueError("the dimensions were not recorded")
    length = product([points[d] for d in dims])
    given = destinations(call, 4)
    return account(
        [x], given or call.outputs or [out],
        vector=weight * product(points) * log2(max(length, 1)),
        dtype=arithmetic_dtype(x.dtype), op_class="other", fresh=not given,
    )  # fmt: skip


describe("_fft_c2c _fft_r2c _fft_c2r", passes="fourier")
