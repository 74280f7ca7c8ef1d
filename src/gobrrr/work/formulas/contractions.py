"""Matrix products: multiply-adds count two, as in ``torch.utils.flop_counter``.

``m x k`` by ``k x n``: 2 m n k. Adding a bias or a scaled result rides on the same multiply-adds
and is not counted, as there. Complex numbers: a multiply-add is 4 multiplications and 4 additions
of reals, 8 m n k.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gobrrr.timeline.ops import VALUES_IN_ELEMENT, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.sparse import sparse_product
from gobrrr.work.registry import formula, mark_composite
from gobrrr.work.traffic import (
    account,
    broadcast,
    integers,
    is_inplace,
    is_sparse,
    need,
    product,
    results,
    tensor_at,
)
from gobrrr.work.traits import Role


def matrix_work(
    call: OpCall,
    reads: Sequence[TensorSpec],
    multiply_adds: float,
    shape: Sequence[int],
    arity: int,
    *,
    dtype: str | None = None,
    out_dtype: str | None = None,
) -> Work:
    """Work of a contraction of ``reads`` into one result of ``shape``."""
    dtype = reads[-1].dtype if dtype is None else dtype
    out, fresh = results(call, arity, shape, out_dtype or dtype)
    factor = 2.0
    if dtype.startswith("complex"):
        factor = 8.0
        dtype = "float64" if dtype == "complex128" else "float32"
    updates: list[TensorSpec] = []
    if is_inplace(call) and any(spec is out[0] for spec in reads):
        updates, out = out, []
        reads = [spec for spec in reads if spec is not updates[0]]
    return account(
        reads, out, updates, matrix=factor * multiply_adds, dtype=dtype, op_class="contraction",
        fresh=fresh,
    )  # fmt: skip


@formula("aten::mm", fusion=Role.CONTRACTION)
def mm(call: OpCall) -> Work | None:
    """``(m, k) @ (k, n)``; one of them may be sparse."""
    if any(map(is_sparse, call.args)):
        return sparse_product(call)
    a, b = need(call, 0), need(call, 1)
    m, k = a.shape
    n = b.shape[1]
    return matrix_work(call, (a, b), m * n * k, (m, n), 2)


@formula("aten::_int_mm", fusion=Role.CONTRACTION)
def int_mm(call: OpCall) -> Work:
    """``(m, k) @ (k, n)`` of int8 into int32: operations of the matrix unit, counted alike."""
    a, b = need(call, 0), need(call, 1)
    m, k = a.shape
    n = b.shape[1]
    return matrix_work(call, (a, b), m * n * k, (m, n), 2, out_dtype="int32")


@formula("aten::addmm", "aten::addmm_", "aten::_addmm_activation", fusion=Role.CONTRACTION)
def addmm(call: OpCall) -> Work | None:
    """``beta * self + alpha * (m, k) @ (k, n)``; a bias that broadcasts is read once."""
    if any(map(is_sparse, call.args)):
        return sparse_product(call)
    bias, a, b = need(call, 0), need(call, 1), need(call, 2)
    m, k = a.shape
    n = b.shape[1]
    arity = 6 if call.name.endswith("activation") else 5
    return matrix_work(call, (*_addend(call, bias), a, b), m * n * k, (m, n), arity)


@formula("aten::bmm", fusion=Role.CONTRACTION)
def bmm(call: OpCall) -> Work:
    """``(b, m, k) @ (b, k, n)``."""
    x, y = need(call, 0), need(call, 1)
    b, m, k = x.shape
    n = y.shape[2]
    return matrix_work(call, (x, y), b * m * n * k, (b, m, n), 2)


@formula("aten::baddbmm", "aten::baddbmm_", fusion=Role.CONTRACTION)
def baddbmm(call: OpCall) -> Work:
    """``beta * self + alpha * (b, m, k) @ (b, k, n)``."""
    bias, x, y = need(call, 0), need(call, 1), need(call, 2)
    b, m, k = x.shape
    n = y.shape[2]
    return matrix_work(call, (*_addend(call, bias), x, y), b * m * n * k, (b, m, n), 5)


@formula("aten::addbmm", "aten::addbmm_", fusion=Role.CONTRACTION)
def addbmm(call: OpCall) -> Work:
    """``beta * self + alpha * sum over b of (b, m, k) @ (b, k, n)``: one ``(m, n)`` result."""
    bias, x, y = need(call, 0), need(call, 1), need(call, 2)
    b, m, k = x.shape
    n = y.shape[2]
    return matrix_work(call, (*_addend(call, bias), x, y), b * m * n * k, (m, n), 5)


@formula("aten::mv", "aten::addmv", "aten::addmv_", fusion=Role.CONTRACTION)
def mv(call: OpCall) -> Work | None:
    """``(m, k) @ (k,)``, ``beta * self + alpha * (m, k) @ (k,)``; the matrix may be sparse."""
    if any(map(is_sparse, call.args)):
        return sparse_product(call)
    added = _addend(call, need(call, 0)) if call.name != "aten::mv" else ()
    first, arity = (0, 2) if call.name == "aten::mv" else (1, 5)
    a, x = need(call, first), need(call, first + 1)
    m, k = a.shape
    return matrix_work(call, (*added, a, x), m * k, (m,), arity)


@formula("aten::dot", "aten::vdot", fusion=Role.CONTRACTION)
def dot(call: OpCall) -> Work:
    """Two vectors into a scalar."""
    x, y = need(call, 0), need(call, 1)
    return matrix_work(call, (x, y), x.numel, (), 2)


@formula("aten::addr", "aten::addr_")
def addr(call: OpCall) -> Work:
    """``beta * self + alpha * outer(x, y)``."""
    bias, x, y = need(call, 0), need(call, 1), need(call, 2)
    m, n = x.numel, y.numel
    return matrix_work(call, (*_addend(call, bias), x, y), m * n, (m, n), 5)


def _addend(call: OpCall, spec: TensorSpec) -> tuple[TensorSpec, ...]:
    # With beta 0 the addend is not read (the documentation of addmm: nan and inf in it are
    # ignored).
    beta = call.args[3] if len(call.args) > 3 else None
    return () if isinstance(beta, (int, float)) and beta == 0 else (spec,)


# Composite and fused linear layers


@formula("aten::linear", "aten::mkldnn_linear", fusion=Role.CONTRACTION)
def linear(call: OpCall) -> Work:
    """``input (..., k) @ weight (n, k).T + bias``; in oneDNN too."""
    return linear_work(call, need(call, 0), need(call, 1), tensor_at(call, 2), 3)


mark_composite(("aten::linear",))


@formula("mkldnn::_linear_pointwise", "mkl::_mkl_linear")
def fused_linear(call: OpCall) -> Work:
    """Linear layers that Inductor calls on a CPU, with an activation or a second addend fused.

    The activation's FLOPs are not counted. ``_mkl_linear(input, packed, weight, bias, batch)``;
    ``_linear_pointwise(input, [other,] weight, bias, attr, ...)``.
    """
    x = need(call, 0)
    if call.name == "mkl::_mkl_linear":
        return linear_work(call, x, need(call, 2), tensor_at(call, 3), 5)
    second, third = need(call, 1), tensor_at(call, 2)
    if call.overload.startswith("binary") or (third is not None and len(third.shape) == 2):
        assert third is not None
        return linear_work(call, x, third, tensor_at(call, 3), 99, addend=second)
    return linear_work(call, x, second, third, 99)


def linear_work(
    call: OpCall,
    x: TensorSpec,
    weight: TensorSpec,
    bias: TensorSpec | None,
    arity: int,
    addend: TensorSpec | None = None,
) -> Work:
    """``x (..., k) @ weight (n, k).T``, with a bias and an addend of the result's shape."""
    n = weight.shape[0] if len(weight.shape) > 1 else 1
    reads = [spec for spec in (bias, addend, x, weight) if spec is not None]
    shape = (*x.shape[:-1], n) if len(weight.shape) > 1 else x.shape[:-1]
    return matrix_work(call, reads, x.numel * n, shape, arity, dtype=x.dtype)


@formula("aten::mkldnn_linear_backward_input")
def mkldnn_linear_backward_input(call: OpCall) -> Work:
    """``(input_size, grad_output (..., n), weight (n, k)) -> (..., k)``."""
    grad, weight = need(call, 1), need(call, 2)
    k = weight.shape[1]
    return matrix_work(call, (grad, weight), grad.numel * k, (*grad.shape[:-1], k), 3)


@formula("aten::mkldnn_linear_backward_weights")
def mkldnn_linear_backward_weights(call: OpCall) -> Work:
    """``(grad_output (..., n), input (..., k), weight (n, k), bias_defined)``: weight and bias."""
    grad, x, weight = need(call, 0), need(call, 1), need(call, 2)
    n, k = weight.shape
    outputs = call.outputs or (weight, TensorSpec((n,), grad.dtype))
    return account(
        (grad, x),
        outputs,
        matrix=2.0 * grad.numel * k,
        vector=float(grad.numel) if _flag(call, 3) else 0.0,
        dtype=x.dtype,
        op_class="contraction",
    )


@formula("aten::mkldnn_linear_backward", "aten::linear_backward")
def linear_backward(call: OpCall) -> Work:
    """``(self (..., k), grad_output (..., n), weight (n, k), output_mask)``."""
    x, grad, weight = need(call, 0), need(call, 1), need(call, 2)
    mask = output_mask(call, 3)
    k = weight.shape[1]
    products = (1 if mask[0] else 0) + (1 if mask[1] else 0)
    candidates = (x, weight, TensorSpec((weight.shape[0],), grad.dtype))
    outputs = [spec for spec, wanted in zip(candidates, mask) if wanted]
    reads = [grad, *((weight,) if mask[0] else ()), *((x,) if mask[1] else ())]
    return account(
        reads,
        [TensorSpec(spec.shape, spec.dtype) for spec in outputs],
        matrix=2.0 * products * grad.numel * k,
        vector=float(grad.numel) if mask[2] else 0.0,
        dtype=x.dtype,
        op_class="contraction",
    )


def output_mask(call: OpCall, index: int) -> tuple[bool, bool, bool]:
    """Which of three gradients are computed.

    Raises:
        ValueError: it was not recorded.
    """
    mask = call.args[index]
    if not isinstance(mask, tuple) or not all(isinstance(wanted, bool) for wanted in mask):
        raise ValueError(f"{call.name}: output_mask was not recorded")
    first, second, third = (*mask, False)[:3]
    return bool(first), bool(second), bool(third)


def _flag(call: OpCall, index: int) -> bool:
    return len(call.args) > index and call.args[index] is True


@formula("aten::matmul", "aten::_unsafe_matmul", composite=True, fusion=Role.CONTRACTION)
def matmul(call: OpCall) -> Work:
    """Any ranks: vectors, matrices, broadcast batches."""
    a, b = need(call, 0), need(call, 1)
    first = a.shape if len(a.shape) > 1 else (1, *a.shape)
    second = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = broadcast((first[:-2], second[:-2]))
    m, k = first[-2:]
    n = second[-1]
    shape = (
        *batch,
        *((m,) if len(a.shape) > 1 else ()),
        *((n,) if len(b.shape) > 1 else ()),
    )
    return matrix_work(call, (a, b), product(batch) * m * n * k, shape, 2)


@formula("aten::_trilinear")
def trilinear(call: OpCall) -> Work | None:
    """``(a, b, c, expand_a, expand_b, expand_c, sumdim, unroll_dim)``: sums of a * b * c.

    Each gets dimensions of size 1 where ``expand`` says so. One of the summed dimensions goes with
    the first product, the rest with the second.
    """
    factors = [need(call, i) for i in range(3)]
    expanded = []
    for i, spec in enumerate(factors):
        shape = list(spec.shape)
        for dim in sorted(integers(call.args[3 + i]) or ()):
            shape.insert(dim, 1)
        expanded.append(tuple(shape))
    space = broadcast(expanded)
    summed = integers(call.args[6])
    if summed is None:
        return None
    longest = max((space[dim] for dim in summed), default=1)
    points = product(space)
    shape = [n for dim, n in enumerate(space) if dim not in summed]
    return matrix_work(call, factors, points + points / max(longest, 1), shape, 8)


@formula("aten::bilinear", composite=True)
def bilinear(call: OpCall) -> Work:
    """``bilinear(x (..., i), y (..., j), weight (o, i, j), bias)``; ``_trilinear`` is inside."""
    x, y, weight, bias = need(call, 0), need(call, 1), need(call, 2), tensor_at(call, 3)
    out, i, j = weight.shape
    rows = product(x.shape[:-1])
    reads = [spec for spec in (bias, x, y, weight) if spec is not None]
    # First x @ weight: o i j per row, then the dot with y: o j.
    return matrix_work(call, reads, rows * out * (i * j + j), (*x.shape[:-1], out), 4)


# Scaled, grouped and weight-only quantised products


@formula("aten::_scaled_mm", "aten::_scaled_mm_v2", fusion=Role.CONTRACTION)
def scaled_mm(call: OpCall) -> Work:
    """``(m, k) @ (k, n)`` of float8 with scales (read), a bias, and a dtype for the result.

    Elements of float4 hold two values each, along k.
    """
    a, b = need(call, 0), need(call, 1)
    m, k = a.shape[0], a.shape[1] * VALUES_IN_ELEMENT.get(a.dtype, 1)
    n = b.shape[1]
    extra = [spec for spec in call.tensors if spec is not a and spec is not b]
    named = [arg for arg in call.args if isinstance(arg, str) and arg in _RESULT_DTYPES]
    return matrix_work(
        call, (*extra, a, b), m * n * k, (m, n), 99, dtype=a.dtype,
        out_dtype=named[-1] if named else "bfloat16",
    )  # fmt: skip


_RESULT_DTYPES = ("float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2")


@formula("aten::_grouped_mm", "aten::_scaled_grouped_mm", fusion=Role.CONTRACTION)
def grouped_mm(call: OpCall) -> Work | None:
    """Products over groups: 3-D by 3-D, 2-D rows or inner dimension cut by offsets.

    ``(t, k) @ (g, k, n)``: every row meets one group's matrix, 2 t k n, and the matrices of groups
    that have rows are read. ``(g, m, k) @ (k, t)``: 2 m k t, likewise. ``(m, t) @ (t, n)``: the
    inner dimension is cut, 2 m t n, into ``(g, m, n)``.
    """
    a, b = need(call, 0), need(call, 1)
    others = [spec for spec in call.tensors if spec is not a and spec is not b]
    groups = groups_of(call)
    if len(a.shape) == 2 and len(b.shape) == 3:
        shape: tuple[int, ...] = (a.shape[0], b.shape[2])
        multiply_adds = a.numel * b.shape[2]
        b = _first_matrices(b, groups_used(call, a.shape[0], b.shape[0]))
    elif len(a.shape) == 3 and len(b.shape) == 3:
        shape = (a.shape[0], a.shape[1], b.shape[2])
        multiply_adds = a.numel * b.shape[2]
    elif len(a.shape) == 3:
        shape = (a.shape[1], b.shape[1])
        multiply_adds = a.shape[1] * b.numel
        a = _first_matrices(a, groups_used(call, b.shape[1], a.shape[0]))
    elif groups is not None:
        shape = (groups, a.shape[0], b.shape[1])
        multiply_adds = a.numel * b.shape[1]
    else:
        return None
    out_dtype = "bfloat16" if a.dtype.startswith("float8") else a.dtype
    return matrix_work(
        call, (*others, a, b), multiply_adds, shape, 99, dtype=a.dtype, out_dtype=out_dtype
    )


def groups_of(call: OpCall) -> int | None:
    """Groups of a grouped product by its offsets (int32); ``None`` where there are none."""
    values = _offsets(call)
    if values is not None:
        return len(values)
    found = (spec for spec in call.tensors[2:] if spec.dtype == "int32")
    return next((spec.numel for spec in found), None)


def groups_used(call: OpCall, rows: int, groups: int) -> int:
    """Groups that have rows: by the offsets where their values are known, else as many as can."""
    values = _offsets(call)
    if values is None:
        return min(rows, groups)
    return sum(end > start for start, end in zip((0, *values), values))


def _offsets(call: OpCall) -> tuple[int, ...] | None:
    """The ends of the groups, where a recorder knew them: plain numbers in place of the tensor."""
    for arg in call.args[2:]:
        if isinstance(arg, tuple) and arg and all(type(item) is int for item in arg):
            return integers(arg)
    return None


def _first_matrices(stack: TensorSpec, count: int) -> TensorSpec:
    """``count`` of the matrices of a stack, for the bytes that are read."""
    return replace(stack, shape=(count, *stack.shape[1:]))
