"""Factorisations on GPUs: columns that wait for each other, and products in between.

A column of a panel can only be factored when those before it are applied to it, so a factorisation
of n columns is a chain of n latencies whatever the device; the rest are products and, in reductions
to tridiagonal or Hessenberg form, products with a vector, which read what is left of the matrix for
each column (G. Golub and C. Van Loan, *Matrix Computations*, 4th ed., sections 5.2.2, 7.4, 8.3.1
and 8.6.3; J. Dongarra, D. Sorensen, S. Hammarling, "Block reduction of matrices to condensed
forms", JCAM 27, 1989).

The latencies are those of cuSOLVER's routines that PyTorch calls, from timings that were published
beside the code (float32, microseconds a column):

- Cholesky 0.73: 376 us for 512 x 512, pull request 173515 of pytorch/pytorch.
- QR 3.0 for the factors, as much again for Q: 1.55 ms for 512 x 512 without Q (pull request 5586 of
  flagos-ai/FlagGems); 189 us for 128 x 32 with Q on an H100 (173788 of pytorch).
- Symmetric eigenvalues 18: 914 ms for 500 of 100 x 100, one after the other (issue 174674).
- Other eigenvalues 200, of cuSOLVER's Xgeev (PyTorch 2.10 and later; before, LAPACK on the host):
  between 512 of 3 x 3, one after the other, in 182 ms on a GH200 and in 478 ms on an RTX 5090
  (issue 183806), and 2 s for 4096 x 4096 in complex128 without vectors on a GH200, where the
  products below are a fifth of it (issue 51 of icl-utk-edu/magma; 22 s for 16384).
- SVD 54: 1.61 s for 300 of 900 x 100, one after the other, Jacobi (gesvdj, the default) on a V100
  (issue 41306).
- LU is not among them and taken as Cholesky, the least that a column takes; it searches a pivot
  too.
- A solve with a triangular matrix (cuBLAS's trsm, which cuSOLVER's getrs and potrs call twice) 0.26
  a row: 270 us for both factors of 512 x 512 and 64 right-hand sides on an H20 (pull request 6525
  of flagos-ai/FlagGems). With one right-hand side 0.054: 53.0 us for 256 x 256 after 39.3 us for
  128 x 128, both factors (5011 of FlagGems).

Between the columns Cholesky goes at ``LEVEL_3`` of the float32 peak: 64 of 2048 x 2048 take 22.2 ms
(173515), 8.3 TFLOP/s, 12 % of an H100's, which is taken for every GPU and every kind; trsm's go
at the rate of large products.
"""

from __future__ import annotations

from math import ceil, prod
from typing import NamedTuple

from gobrrr.prediction.kernels.coefficients import Coefficients
from gobrrr.prediction.kernels.kernels import Kernels
from gobrrr.prediction.kernels.passes import cache_bytes_per_s, dram_bytes_per_s
from gobrrr.prediction.kernels.target import TargetDevice
from gobrrr.timeline.ops import OpCall
from gobrrr.timeline.quantities import percent, time_text
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.linear_algebra import is_hermitian, solved
from gobrrr.work.traffic import need

LEVEL_3 = 0.12
# Columns in a panel, as LAPACK blocks: a kernel for the panel, one for what is right of it.
_PANEL = 32
# Sweeps over all pairs of columns until Jacobi's rotations have converged: up to 10 (Golub and Van
# Loan, section 8.5.5).
_SWEEPS = 10
# Matrices of at most so many rows, and at least two of them and one for each 16 rows, are factored
# together by cuBLAS (``geqrf_kernel`` and ``lstsq_kernel``, BatchLinearAlgebra.cpp). Their Qs are
# still formed one after the other (``orgqr_helper_cusolver``).
_BATCHED_QR, _ROWS_A_MATRIX = 256, 16
# Matrices up to this size are factored in one batched kernel by Jacobi
# (aten/src/ATen/native/cuda/linalg/BatchLinearAlgebraLib.cpp).
_BATCHED_JACOBI = 32


class _Family(NamedTuple):
    """What a kind of factorisation waits for.

    ``column_s``: seconds a column. ``batched``: whether a batch goes through its columns together.
    ``reads``: how often a column reads what is left of the matrix beside the products.
    ``library``: whose routine it is.
    """

    name: str
    column_s: float
    batched: bool
    reads: float = 0.0
    library: str = "cuSOLVER"


_CHOLESKY = _Family("Cholesky", 0.73e-6, True)
_LU = _Family("LU", 0.73e-6, True)
_QR = _Family("QR", 3.0e-6, False)
_EIGH = _Family("tridiagonal reduction", 18e-6, False, reads=1.0)
_EIG = _Family("Hessenberg reduction and QR iterations", 200e-6, False, reads=1.0)
_SVD = _Family("Jacobi's SVD", 54e-6, False)

_SOLVE = _Family("triangular solve", 0.26e-6, True, library="cuBLAS")
_OF_ONE_S = 0.054e-6
# Operators that solve with one triangular matrix; the others with both factors of a matrix.
_ONCE = ("linalg_solve_triangular", "triangular_solve")

_FAMILIES = {
    "linalg_cholesky_ex": _CHOLESKY, "cholesky": _CHOLESKY,
    "linalg_lu_factor_ex": _LU, "linalg_lu": _LU, "linalg_ldl_factor_ex": _LU, "_linalg_det": _LU,
    "_linalg_slogdet": _LU, "linalg_inv_ex": _LU, "inverse": _LU, "_linalg_solve_ex": _LU,
    "linalg_qr": _QR, "geqrf": _QR, "linalg_householder_product": _QR, "linalg_lstsq": _QR,
    "_linalg_eigh": _EIGH, "linalg_eigh": _EIGH, "linalg_eig": _EIG, "_linalg_eigvals": _EIG,
    "_linalg_svd": _SVD, "linalg_svd": _SVD, "linalg_pinv": _SVD, "pinverse": _SVD,
    "linalg_solve_triangular": _SOLVE, "triangular_solve": _SOLVE, "linalg_lu_solve": _SOLVE,
    "lu_solve": _SOLVE, "cholesky_solve": _SOLVE, "cholesky_inverse": _SOLVE,
}  # fmt: skip


def time_of_factorisation(
    call: OpCall, work: Work, device: TargetDevice, c: Coefficients
) -> Kernels | None:
    """Expected time; ``None`` for other ops, and where a ceiling is missing.

    The chain of columns (each matrix of a batch after the last where the library loops over them),
    beside it the arithmetic at ``LEVEL_3`` of the peak and what the columns read.

    Raises:
        IndexError, ValueError: the trace leaves arguments out.
    """
    name = call.name.removeprefix("aten::")
    family = _FAMILIES.get(name)
    if family is None:
        return None
    if is_hermitian(call):
        family = _EIGH
    x = solved(call)[0] if family is _SOLVE else need(call, 0)
    batch, rows, columns = prod(x.shape[:-2]), max(x.shape[-2:]), min(x.shape[-2:])
    # Without matrix units for its dtype, and without TF32: cuSOLVER computes as it is asked to.
    dtype = "float32" if work.compute_dtype == "tf32" else work.compute_dtype
    rate = device.ceilings.matrix_flops_per_s(dtype)
    dram, cache = dram_bytes_per_s(device, c), cache_bytes_per_s(device, c)
    if rate is None or dram is None or cache is None or not columns:
        return None
    turns = 1 if family.batched else batch
    flops = work.matrix_flops or 0.0
    per_column_s, share = family.column_s, LEVEL_3
    if family is _SOLVE:
        per_column_s *= _solves(call)
        share = c.float32_fraction if dtype == "float32" else c.matrix_fraction
        if name == "cholesky_inverse":
            # With the identity as right-hand sides, taken as dense
            # (``_cholesky_inverse_cusolver_potrs_based``, BatchLinearAlgebraLib.cpp).
            flops = max(flops, 2.0 * batch * columns**3)
    chains = _chains_of_qr(call, batch, x.shape[-2]) if family is _QR else turns
    if family in (_EIGH, _SVD) and rows <= _BATCHED_JACOBI:
        turns = chains = 1
    if family is _SVD:
        # A rotation of two columns: three dot products, and both columns of A and of V turned.
        flops = max(flops, _SWEEPS * batch * columns**2 / 2 * (12.0 * rows + 6.0 * columns))
    size = float((x.item_size_bytes or 4) * rows * columns)
    bandwidth = cache if size <= device.cache_bytes / 2 else dram
    # What is left shrinks with each column: a third of all columns times all of the matrix.
    read_s = family.reads * batch * columns * size / 3 / bandwidth
    compute_s = flops / (rate * share)
    memory_s = read_s + float(work.bytes_moved or 0) / dram
    chain_s = chains * columns * per_column_s
    one_s = max(device.kernel_fixed_s, c.kernel_floor_s)
    # The chain's kernels are within it: no more than it has time for.
    count = max(1, min(2 * chains * ceil(columns / _PANEL), int(chain_s / one_s)))
    looped = "" if chains == 1 else f" in {chains} chains"
    if chains == turns > 1:
        looped = f" in each of {turns} matrices"
    how = (
        f"{family.name}: {columns} columns{looped}, one after the other, {time_text(per_column_s)} "
        f"each ({family.library}), and products between them at {percent(share)} of the peak"
    )
    latency_s = max(0.0, chain_s - count * one_s)
    return Kernels(compute_s + memory_s, compute_s, memory_s, count, how, latency_s)


def _solves(call: OpCall) -> float:
    """How many triangular solves an operator waits for, in those of several right-hand sides."""
    sides = solved(call)[1]
    factors = 1 if call.name.removeprefix("aten::") in _ONCE else 2
    alone = sides is not None and sides.shape[-1:] == (1,)
    return factors * (_OF_ONE_S / _SOLVE.column_s if alone else 1.0)


def _chains_of_qr(call: OpCall, batch: int, rows: int) -> int:
    """How often the columns of a matrix wait for each other, over a batch.

    Its factors, and Q where that is formed.
    """
    name = call.name.removeprefix("aten::")
    together = rows <= _BATCHED_QR and batch >= max(2, rows / _ROWS_A_MATRIX)
    factored = 1 if together and name != "linalg_householder_product" else batch
    return factored + (batch if name == "linalg_qr" and "r" not in call.args else 0)
