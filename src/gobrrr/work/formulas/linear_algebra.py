"""Factorisations and solvers: leading-order FLOPs, on the matrix unit (they are blocked).

Sources: LAPACK Working Note 41, appendix C, https://www.netlib.org/lapack/lawnspdf/lawn41.pdf
(Cholesky, LU, QR, triangular solves, inverses), and Golub and Van Loan, *Matrix Computations*, 4th
ed., section 8.3 (symmetric QR: 4/3 n^3 for values, 9 n^3 with vectors), section 7.5 (general: 10
n^3, 25 n^3) and figure 8.6.1 (SVD: 4 m n^2 - 4/3 n^3, 14 m n^2 + 8 n^3 with thin U and V).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import add_formula, formula, qualified
from gobrrr.work.traffic import account, need, product, results
from gobrrr.work.traits import describe

# Operators that factor a matrix column by column, or solve with a triangular one row by row, each
# waiting for those before it; without ``aten::``.
FACTORISATIONS = frozenset({
    "linalg_cholesky_ex", "cholesky", "linalg_lu_factor_ex", "linalg_lu", "linalg_ldl_factor_ex",
    "_linalg_det", "_linalg_slogdet", "linalg_inv_ex", "inverse", "_linalg_solve_ex", "linalg_qr",
    "geqrf", "linalg_householder_product", "linalg_lstsq", "_linalg_eigh", "linalg_eigh",
    "linalg_eig", "_linalg_eigvals", "_linalg_svd", "linalg_svd",
    "linalg_pinv", "pinverse",
    "linalg_solve_triangular", "triangular_solve", "linalg_lu_solve", "lu_solve", "cholesky_solve",
    "cholesky_inverse",
})  # fmt: skip


PRODUCTS_OF_EXPONENTIAL = 5


def _work(call: OpCall, flops: float, reads: list[TensorSpec] | None = None) -> Work:
    x = need(call, 0)
    batch = product(x.shape[:-2])
    factor = 4.0 if x.dtype.startswith("complex") else 1.0
    outputs = call.outputs or (TensorSpec(x.shape, x.dtype),)
    dtype = {"complex64": "float32", "complex128": "float64"}.get(x.dtype, x.dtype)
    return account(
        reads or list(call.tensors), outputs, matrix=factor * batch * flops, dtype=dtype,
        op_class="other",
    )  # fmt: skip


def _sides(spec: TensorSpec) -> tuple[int, int]:
    """Rows and columns, the longer first."""
    m, n = spec.shape[-2:]
    return max(m, n), min(m, n)


# FLOPs of one matrix of m by n, the longer side first.
_OF_SIDES: dict[str, Callable[[float, float], float]] = {
    "linalg_cholesky_ex cholesky": lambda m, n: n**3 / 3,
    "linalg_lu_factor_ex linalg_lu linalg_ldl_factor_ex _linalg_det _linalg_slogdet":
        lambda m, n: m * n**2 - n**3 / 3,
    # LU and two triangular inverses.
    "linalg_inv_ex inverse": lambda m, n: 2 * n**3,
    "cholesky_inverse": lambda m, n: 2 / 3 * n**3,
    "linalg_eig": lambda m, n: 25 * n**3,
    "_linalg_eigvals": lambda m, n: 10 * n**3,
    # At least the products of a Taylor polynomial of degree 18 (Bader, Blanes, Casas 2019).
    "linalg_matrix_exp": lambda m, n: PRODUCTS_OF_EXPONENTIAL * 2 * n**3,
}  # fmt: skip


def _of_sides(call: OpCall, flops: Callable[[float, float], float]) -> Work:
    return _work(call, flops(*_sides(need(call, 0))))


for _names, _flops in _OF_SIDES.items():
    add_formula(qualified(_names), partial(_of_sides, flops=_flops))


@formula("aten::_linalg_solve_ex")
def solve(call: OpCall) -> Work:
    """``(A, B)``: LU, then two triangular solves: 2/3 n^3 + 2 n^2 k."""
    a, b = need(call, 0), need(call, 1)
    n = a.shape[-1]
    return _work(call, 2 / 3 * n**3 + 2 * n**2 * _columns(a, b))


def _columns(a: TensorSpec, b: TensorSpec) -> int:
    return b.shape[-1] if len(b.shape) >= len(a.shape) else 1


def solved(call: OpCall) -> tuple[TensorSpec, TensorSpec | None]:
    """The triangular matrix of an operator that solves with one, and the right-hand sides.

    Those of ``cholesky_inverse`` are the columns of the identity: ``None``.
    """
    name = call.name.removeprefix("aten::")
    if name == "cholesky_inverse":
        return need(call, 0), None
    if name in ("linalg_solve_triangular", "linalg_lu_solve"):
        return need(call, 0), need(call, 1 if name == "linalg_solve_triangular" else 2)
    return need(call, 1), need(call, 0)


@formula(*qualified("linalg_solve_triangular triangular_solve"))
def triangular(call: OpCall) -> Work:
    """``(A, B)``, or ``triangular_solve(B, A)``: n^2 k; half of A is read."""
    a, b = solved(call)
    assert b is not None
    n = a.shape[-1]
    half = TensorSpec((*a.shape[:-2], n * (n + 1) // 2), a.dtype)
    return _work(call, n**2 * _columns(a, b), [half, b])


@formula(*qualified("linalg_lu_solve lu_solve cholesky_solve linalg_ldl_solve"))
def factored_solve(call: OpCall) -> Work:
    """Two triangular solves: 2 n^2 k. ``linalg_lu_solve(LU, pivots, B)``, else ``(B, LU, ...)``."""
    if call.name.startswith("aten::linalg"):
        a, b = need(call, 0), need(call, 2)
    else:
        b, a = need(call, 0), need(call, 1)
    return _work(call, 2 * a.shape[-1] ** 2 * _columns(a, b))


@formula(*qualified("linalg_qr geqrf linalg_householder_product ormqr"))
def qr(call: OpCall) -> Work:
    """2 m n^2 - 2/3 n^3, and as much again to form Q."""
    m, n = _sides(need(call, 0))
    both = call.name.endswith("linalg_qr") and "r" not in call.args
    return _work(call, (2 * m * n**2 - 2 / 3 * n**3) * (2 if both else 1))


@formula("aten::_linalg_eigh", "aten::linalg_eigh")
def eigh(call: OpCall) -> Work:
    """``(A, UPLO, compute_v)``."""
    n = need(call, 0).shape[-1]
    vectors = len(call.args) < 3 or call.args[2] is not False
    return _work(call, (9 if vectors else 4 / 3) * n**3)


@formula("aten::_linalg_svd", "aten::linalg_svd")
def svd(call: OpCall) -> Work:
    """``(A, full_matrices, compute_uv)``."""
    m, n = _sides(need(call, 0))
    vectors = len(call.args) < 3 or call.args[2] is not False
    return _work(call, 14 * m * n**2 + 8 * n**3 if vectors else 4 * m * n**2 - 4 / 3 * n**3)


@formula("aten::linalg_lstsq")
def least_squares(call: OpCall) -> Work:
    """``(A (m, n), B (m, k), ...)``: QR, Q^T B (4 m n k - 2 n^2 k), a triangular solve (n^2 k)."""
    a, b = need(call, 0), need(call, 1)
    m, n = _sides(a)
    k = _columns(a, b)
    return _work(call, 2 * m * n**2 - 2 / 3 * n**3 + 4 * m * n * k - n**2 * k)


@formula("aten::linalg_pinv", "aten::pinverse", composite=True)
def pseudo_inverse(call: OpCall) -> Work:
    """A thin SVD, and a product of its factors: 14 m n^2 + 8 n^3 + 2 m n^2.

    Of a Hermitian matrix its eigenvalues and vectors: 9 n^3 + 2 n^3.
    """
    m, n = _sides(need(call, 0))
    if is_hermitian(call):
        return _work(call, 11 * n**3)
    return _work(call, 16 * m * n**2 + 8 * n**3)


def is_hermitian(call: OpCall) -> bool:
    """Whether ``linalg_pinv`` was told so (its last argument), and so calls ``linalg_eigh``."""
    return call.name == "aten::linalg_pinv" and call.args[-1] is True


@formula("aten::_linalg_check_errors")
def check_errors(call: OpCall) -> Work:
    """``(info, ...)``: the error codes are read."""
    return account([need(call, 0)], dtype="int32", op_class="other")


@formula("aten::linalg_cross")
def cross(call: OpCall) -> Work:
    """``(self, other, dim)``: 2 products and a subtraction per element."""
    x, y = need(call, 0), need(call, 1)
    out = call.outputs or (TensorSpec(x.shape, x.dtype),)
    return account([x, y], out, vector=3.0 * x.numel, dtype=x.dtype, op_class="elementwise")


@formula("aten::_euclidean_dist")
def euclidean_dist(call: OpCall) -> Work:
    """``(x1 (..., p, d), x2 (..., r, d))``: a product over d + 2, for |x|^2 - 2 x y + |y|^2.

    Each row gets its square's sum and a one (``_euclidean_dist`` in Distance.cpp); the result a
    comparison and a root.
    """
    x, y = need(call, 0), need(call, 1)
    p, d = x.shape[-2:]
    pairs = product(x.shape[:-1]) * y.shape[-2]
    out = call.outputs or (TensorSpec((*x.shape[:-2], p, y.shape[-2]), x.dtype),)
    return account(
        [x, y], out, matrix=2.0 * pairs * (d + 2), vector=5.0 * pairs + 2 * (x.numel + y.numel),
        dtype=x.dtype, op_class="contraction",
    )  # fmt: skip


@formula("aten::_cdist_forward")
def cdist(call: OpCall) -> Work:
    """``(x1 (..., p, d), x2 (..., r, d), p, mode)``: a difference, a power and a sum, 3 d."""
    x, y = need(call, 0), need(call, 1)
    p, d = x.shape[-2:]
    r = y.shape[-2]
    batch = product(x.shape[:-2])
    out = call.outputs or (TensorSpec((*x.shape[:-1], r), x.dtype),)
    return account(
        [x, y], out, vector=float(3 * batch * p * r * d + 4 * batch * p * r), dtype=x.dtype,
        op_class="other",
    )  # fmt: skip


@formula("aten::_cdist_backward")
def cdist_backward(call: OpCall) -> Work:
    """``(grad, x1, x2, p, cdist)`` -> the gradient of x1: 4 d per pair."""
    grad, x, y, distances = need(call, 0), need(call, 1), need(call, 2), need(call, 4)
    out = call.outputs or (TensorSpec(x.shape, x.dtype),)
    return account(
        [grad, x, y, distances], out, vector=float(4 * distances.numel * x.shape[-1]),
        dtype=x.dtype, op_class="other",
    )  # fmt: skip


@formula("aten::_pdist_forward")
def pdist(call: OpCall) -> Work:
    """``(x (n, d), p)`` -> the n (n - 1) / 2 distances between rows: 3 d each, and a root."""
    x = need(call, 0)
    n, d = x.shape
    pairs = n * (n - 1) // 2
    out = call.outputs or (TensorSpec((pairs,), x.dtype),)
    return account(
        [x], out, vector=float(pairs * (3 * d + 4)), dtype=x.dtype,
        op_class="other",
    )  # fmt: skip


@formula("aten::_pdist_backward")
def pdist_backward(call: OpCall) -> Work:
    """``(grad, x, p, distances)``: 4 d per pair, added to one row and taken from the other."""
    grad, x, distances = need(call, 0), need(call, 1), need(call, 3)
    out = call.outputs or (TensorSpec(x.shape, x.dtype),)
    return account(
        [grad, x, distances], out, vector=float(5 * distances.numel * x.shape[-1]), dtype=x.dtype,
        op_class="other",
    )  # fmt: skip


@formula("aten::renorm", "aten::renorm_")
def renorm(call: OpCall) -> Work:
    """``(self, p, dim, maxnorm)``: norms of slices (a power and a sum), and a product each."""
    x = need(call, 0)
    out, fresh = results(call, 4, x.shape, x.dtype)
    return account(
        [x], out, vector=3.0 * x.numel, dtype=x.dtype, op_class="normalisation", fresh=fresh
    )


@formula("aten::dist")
def dist(call: OpCall) -> Work:
    """``(self, other, p)``: a difference, a power, a sum, and one root."""
    x, y = need(call, 0), need(call, 1)
    out = call.outputs or (TensorSpec((), x.dtype),)
    return account(
        [x, y], out, vector=3.0 * max(x.numel, y.numel) + 4,
        dtype=x.dtype, op_class="normalisation",
    )  # fmt: skip


describe("_cdist_forward _pdist_forward", passes="distances")
