"""Operators that only call others: other names, and losses and products made of several ops.

A trace whose kernels hang on the outer operator needs them; ``is_composite`` tells them apart.
"""

from __future__ import annotations

from dataclasses import replace

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.contractions import matrix_work
from gobrrr.work.formulas.indexing import embedding_bag
from gobrrr.work.formulas.losses import nll_loss
from gobrrr.work.registry import add_formula, formula, mark_composite, qualified, work_of
from gobrrr.work.traffic import account, arithmetic_dtype, list_at, need, product
from gobrrr.work.weights import DIVIDE, FUNCTION

# Another name -> the operator it calls with the same arguments.
ALIASES: dict[str, str] = {
    "absolute": "abs", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh",
    "arctan": "atan", "arctanh": "atanh", "arctan2": "atan2", "divide": "div", "fix": "trunc",
    "true_divide": "div", "multiply": "mul", "subtract": "sub", "negative": "neg", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "special_expit": "sigmoid", "special_exp2": "exp2", "special_expm1": "expm1",
    "special_erf": "erf", "special_erfc": "erfc", "special_erfinv": "erfinv",
    "special_gammaln": "lgamma", "special_digamma": "digamma", "special_log1p": "log1p",
    "special_logit": "logit", "special_round": "round", "special_sinc": "sinc",
    "special_xlogy": "xlogy", "special_logsumexp": "logsumexp", "linalg_matmul": "matmul",
    "inverse": "linalg_inv_ex", "linalg_inv": "linalg_inv_ex", "linalg_eigvals": "_linalg_eigvals",
    "linalg_cholesky": "linalg_cholesky_ex", "linalg_solve": "_linalg_solve_ex",
    "linalg_solve_ex": "_linalg_solve_ex", "linalg_det": "_linalg_det", "det": "_linalg_det",
    "linalg_slogdet": "_linalg_slogdet", "logdet": "_linalg_slogdet", "ger": "outer",
    "linalg_lu_factor": "linalg_lu_factor_ex", "special_softmax": "softmax",
    "special_log_softmax": "log_softmax", "orgqr": "linalg_householder_product",
    "take_along_dim": "gather", "row_stack": "vstack",
}  # fmt: skip


def alias(call: OpCall) -> Work | None:
    """The work of the operator that this one is another name of."""
    name = call.name.removeprefix("aten::")
    base = name.removesuffix("_")
    target = ALIASES.get(name) or ALIASES[base]
    if target == "gather":
        # ``take_along_dim(self, indices, dim)``.
        first, second, *rest = call.args
        return work_of(replace(call, name="aten::gather", args=(first, *rest[:1], second)))
    ending = "_" if name not in ALIASES else ""
    return work_of(replace(call, name=f"aten::{target}{ending}"))


for _name in ALIASES:
    # Names that another room of this package claims keep their own formula.
    if _name not in ("inverse", "special_softmax", "special_log_softmax"):
        add_formula((f"aten::{_name}", f"aten::{_name}_"), alias, composite=True)


@formula("aten::einsum", composite=True)
def einsum(call: OpCall) -> Work | None:
    """``(equation, tensors)``: of two operands, one multiply-add for each value of all letters.

    More operands are contracted pairwise in an order of their own: unknown, as is an ellipsis.
    """
    equation = call.args[0]
    operands = list_at(call, 1)
    if not isinstance(equation, str) or "." in equation or len(operands) not in (1, 2):
        return None
    left, _, right = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for letters, spec in zip(left.split(","), operands):
        for letter, n in zip(letters, spec.shape):
            sizes[letter] = max(n, sizes.get(letter, 1))
    if not right:
        right = "".join(sorted(c for c in sizes if left.count(c) == 1))
    shape = tuple(sizes[letter] for letter in right)
    multiply_adds = product(tuple(sizes.values())) if len(operands) == 2 else 0
    return matrix_work(call, operands, multiply_adds, shape, 3)


@formula("aten::tensordot", composite=True)
def tensordot(call: OpCall) -> Work | None:
    """``(self, other, dims_self, dims_other)``."""
    a, b = need(call, 0), need(call, 1)
    dims = call.args[2]
    if not isinstance(dims, tuple):
        return None
    contracted = {d % len(a.shape) for d in dims if isinstance(d, int)}
    inner = product([n for i, n in enumerate(a.shape) if i in contracted])
    rows, columns = a.numel // max(inner, 1), b.numel // max(inner, 1)
    return matrix_work(call, (a, b), rows * columns * inner, (rows, columns), 4)


@formula("aten::inner", "aten::linalg_vecdot", composite=True)
def inner(call: OpCall) -> Work:
    """``(..., k), (..., k)``: every row with every row; ``linalg_vecdot``: row by row."""
    a, b = need(call, 0), need(call, 1)
    if call.name.endswith("vecdot"):
        return matrix_work(call, (a, b), a.numel, a.shape[:-1], 3)
    shape = (*a.shape[:-1], *b.shape[:-1])
    return matrix_work(call, (a, b), product(shape) * a.shape[-1], shape, 2)


@formula("aten::outer", composite=True)
def outer(call: OpCall) -> Work:
    """One product per element of the result; broadcast multiplication, not a contraction."""
    a, b = need(call, 0), need(call, 1)
    out = call.outputs or (TensorSpec((a.numel, b.numel), a.dtype),)
    return account(
        [a, b], out, vector=float(a.numel * b.numel), dtype=arithmetic_dtype(a.dtype),
        op_class="elementwise",
    )  # fmt: skip


@formula("aten::linalg_multi_dot", "aten::chain_matmul", composite=True)
def multi_dot(call: OpCall) -> Work:
    """Matrices multiplied in the cheapest order (the classic recurrence over the split)."""
    chain = list_at(call, 0)
    sides = [chain[0].shape[0], *(spec.shape[-1] for spec in chain)]
    count = len(chain)
    best = [[0] * count for _ in range(count)]
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            best[i][j] = min(
                best[i][k] + best[k + 1][j] + sides[i] * sides[k + 1] * sides[j + 1]
                for k in range(i, j)
            )
    return matrix_work(call, chain, best[0][-1], (sides[0], sides[-1]), 1)


@formula("aten::cross_entropy_loss", composite=True)
def cross_entropy(call: OpCall) -> Work:
    """``(self, target, weight, reduction, ...)``: log-softmax, then one number per target.

    The log-probabilities need not be written: logits and targets read, the loss written.
    """
    x, target = need(call, 0), need(call, 1)
    reads = [x, target, *call.tensors[2:]]
    reduced = not (len(call.args) > 3 and call.args[3] == 0)
    out = call.outputs or (TensorSpec(() if reduced else target.shape, x.dtype),)
    rows = x.numel // max(x.shape[1] if len(x.shape) > 1 else x.shape[0], 1)
    return account(
        reads, out, vector=float((3 + FUNCTION) * x.numel + (FUNCTION + 2) * rows),
        special=float(x.numel + rows), dtype=arithmetic_dtype(x.dtype), op_class="normalisation",
    )  # fmt: skip


add_formula(qualified("nll_loss nll_loss_nd nll_loss2d"), nll_loss, composite=True)
add_formula(qualified("embedding_bag"), embedding_bag, composite=True)


@formula("aten::cosine_similarity", "aten::pairwise_distance", composite=True)
def row_distance(call: OpCall) -> Work:
    """``(x1, x2, ...)``: three sums of products (a difference and its norm), one number a row."""
    x, y = need(call, 0), need(call, 1)
    position: Arg = call.args[2] if len(call.args) > 2 else None
    dim = position if isinstance(position, int) and call.name.endswith("similarity") else -1
    shape = list(x.shape)
    if shape:
        shape.pop(dim)
    out = call.outputs or (TensorSpec(tuple(shape), x.dtype),)
    per_element = 6 if call.name.endswith("similarity") else 4
    return account(
        [x, y], out, vector=float(per_element * x.numel), dtype=arithmetic_dtype(x.dtype),
        op_class="normalisation",
    )  # fmt: skip


@formula(
    "torch_nn::_linear_cross_entropy_batch_chunked",
    "torch_nn::_linear_cross_entropy_batch_chunked_no_reduction",
    composite=True,
)
def linear_cross_entropy(call: OpCall) -> Work:
    """``(input (n, d), weight (c, d), target, bias, ...)``, in chunks whose logits need not move.

    2 n c d, and as much for each of the two gradients that the reduced form computes at once (its
    last three arguments say which). Each logit: maximum, subtraction, exp and sum; in a gradient a
    division besides.
    """
    x, weight = need(call, 0), need(call, 1)
    n, d = x.shape
    classes = weight.shape[0]
    wanted: tuple[bool, ...] = (False, False, False)
    if not call.name.endswith("no_reduction"):
        wanted = tuple(arg is True for arg in call.args[12:15])
    made = [
        TensorSpec(n_out, x.dtype)
        for n_out, is_made in zip((x.shape, weight.shape, (classes,)), wanted)
        if is_made
    ]
    loss = TensorSpec((n,) if call.name.endswith("no_reduction") else (), x.dtype)
    products = 1 + wanted[0] + wanted[1]
    per_logit = 3 + FUNCTION + (DIVIDE + 1 if any(wanted) else 0)
    return account(
        list(call.tensors), list(call.outputs or (loss, *made)),
        matrix=2.0 * products * n * classes * d, vector=float(per_logit * n * classes),
        special=float(n * classes), dtype=x.dtype, op_class="contraction",
    )  # fmt: skip


# Formulas for these stand with their kind; torch 2.13 implements them by calling others.
mark_composite(
    qualified(
        """
adjoint argsort argwhere atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to chunk clip
clip_ column_stack concat concatenate diag dsplit dstack embedding_backward expand_as fill_diagonal_
flatten float_power float_power_ gather_backward hsplit hstack imag index_select_backward inverse
isfinite l1_loss linalg_eigh linalg_svd lu_solve mH mT matrix_H meshgrid mish_backward moveaxis
movedim msort nanmean narrow numpy_T one_hot pad pin_memory positive real relu6 relu6_ resolve_conj
resolve_neg rrelu rrelu_ selu selu_ slow_conv3d square square_ swapaxes swapdims tensor_split
thnn_conv2d tile to_dense to_sparse unflatten unsafe_chunk vander view_as vsplit vstack
_embedding_bag_sparse_backward _pad_packed_sequence _sparse_mm _thnn_fused_lstm_cell_backward
        """
    )
)
