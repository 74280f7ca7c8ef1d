"""Reductions and scans: the input read once, one operation per element of the input."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.formulas.copies import dtype_argument
from gobrrr.work.formulas.pointwise import pointwise
from gobrrr.work.registry import add_formula
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    destinations,
    integers,
    is_float,
    need,
    results,
    tensors_in,
)
from gobrrr.work.traits import Role, Space, describe, result_elements, tensor_of
from gobrrr.work.weights import WEIGHTS, transcendentals_in


class Reduction(NamedTuple):
    """One operator.

    Attributes:
        arity: arguments of the widest functional schema.
        per_input: FLOPs for each element of the input.
        functions: evaluated for each element of the input.
        per_output: FLOPs for each element of the result.
        last: functions for each element of the result.
        dims_at: position of the dimensions; absent or ``None`` there means all.
        keep_at: position of ``keepdim``.
        dtypes: of each result: ``same``, ``float``, ``sum`` (integers widen), ``bool``, ``int64``.
    """

    arity: int
    per_input: float
    functions: tuple[str, ...] = ()
    per_output: float = 0.0
    last: tuple[str, ...] = ()
    dims_at: int = 1
    keep_at: int = 2
    dtypes: tuple[str, ...] = ("same",)


REDUCTIONS: dict[str, Reduction] = {
    "sum": Reduction(4, 1, dtypes=("sum",)),
    "nansum": Reduction(4, 2, dtypes=("sum",)),
    "mean": Reduction(4, 1, last=("div",), dtypes=("float",)),
    "nanmean": Reduction(4, 2, last=("div",), dtypes=("float",)),
    "prod": Reduction(4, 1, dtypes=("sum",)),
    "amax": Reduction(3, 1),
    "amin": Reduction(3, 1),
    "aminmax": Reduction(3, 2, dtypes=("same", "same")),
    "_aminmax": Reduction(3, 2, dtypes=("same", "same")),
    "argmax": Reduction(3, 1, dtypes=("int64",)),
    "argmin": Reduction(3, 1, dtypes=("int64",)),
    # Two sums of a numerically stable pass: subtract, square, add, and the mean before.
    "var": Reduction(4, 4, last=("div",), keep_at=3, dtypes=("float",)),
    "std": Reduction(4, 4, last=("div", "sqrt"), keep_at=3, dtypes=("float",)),
    "var_mean": Reduction(4, 4, last=("div",), keep_at=3, dtypes=("float", "float")),
    "std_mean": Reduction(4, 4, last=("div", "sqrt"), keep_at=3, dtypes=("float", "float")),
    "logsumexp": Reduction(3, 3, ("exp",), 1, ("log",), dtypes=("float",)),
    "norm": Reduction(5, 2, last=("sqrt",), dims_at=2, keep_at=3, dtypes=("float",)),
    "linalg_vector_norm": Reduction(5, 2, last=("sqrt",), dims_at=2, keep_at=3, dtypes=("float",)),
    "any": Reduction(3, 0, dtypes=("bool",)),
    "all": Reduction(3, 0, dtypes=("bool",)),
    "count_nonzero": Reduction(2, 1, keep_at=9, dtypes=("int64",)),
    "median": Reduction(3, 1, dtypes=("same", "int64")),
    "nanmedian": Reduction(3, 1, dtypes=("same", "int64")),
    "mode": Reduction(3, 1, dtypes=("same", "int64")),
    # Of one argument or with a dimension; of two tensors they are element-wise.
    "max": Reduction(3, 1, dtypes=("same", "int64")),
    "min": Reduction(3, 1, dtypes=("same", "int64")),
    "native_norm": Reduction(5, 2, last=("sqrt",), dims_at=2, keep_at=3, dtypes=("float",)),
    "_is_all_true": Reduction(1, 0, dtypes=("bool",)),
    "_is_any_true": Reduction(1, 0, dtypes=("bool",)),
    "trace": Reduction(1, 1),
    "equal": Reduction(2, 1, dtypes=("bool",)),
}

# Scans keep the shape: ``(self, dim, ...)``.
SCANS: dict[str, Reduction] = {
    "cumsum": Reduction(3, 1, dtypes=("sum",)),
    "cumprod": Reduction(3, 1, dtypes=("sum",)),
    "logcumsumexp": Reduction(2, 4, ("exp", "log")),
    "cummax": Reduction(2, 1, dtypes=("same", "int64")),
    "cummin": Reduction(2, 1, dtypes=("same", "int64")),
}


def reduced_shape(shape: tuple[int, ...], dims: Arg, keep: bool) -> tuple[int, ...]:
    """``shape`` without the dimensions; all of them where ``dims`` is ``None`` or empty."""
    listed = integers(dims)
    gone = {d % len(shape) for d in listed} if listed and shape else set(range(len(shape)))
    if keep:
        return tuple(1 if i in gone else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def _result_dtype(kind: str, dtype: str) -> str:
    if kind in ("bool", "int64"):
        return kind
    if not dtype or kind == "same" or is_float(dtype):
        return dtype
    return "float32" if kind == "float" else "int64"


def _functions(names: tuple[str, ...]) -> float:
    return sum(WEIGHTS[name] for name in names)


def reduction(call: OpCall) -> Work | None:
    """Any operator of ``REDUCTIONS``."""
    name = call.name.removeprefix("aten::")
    entry = REDUCTIONS[name]
    x = need(call, 0)
    inputs = tensors_in(call.args[: entry.arity])
    if name in ("max", "min") and len(inputs) > 1 and call.overload != "dim_max":
        return _elementwise_extremum(call, inputs)
    dims: Arg = None
    keep = False
    # ``sum(x, dtype)`` has two arguments, the variants with dimensions at least three.
    if len(call.args) > 2 or name in ("amax", "amin", "any", "all", "count_nonzero"):
        dims = call.args[entry.dims_at] if len(call.args) > entry.dims_at else None
        keep = len(call.args) > entry.keep_at and call.args[entry.keep_at] is True
    shape = reduced_shape(x.shape, dims, keep)
    kinds = entry.dtypes if dims is not None or len(call.args) > 2 else entry.dtypes[:1]
    if name in ("aminmax", "_aminmax", "var_mean", "std_mean"):
        kinds = entry.dtypes
    if name == "equal":
        # A Python bool comes back, not a tensor.
        return account(inputs, vector=float(x.numel) if is_float(x.dtype) else 0.0,
                       dtype=arithmetic_dtype(x.dtype), op_class="normalisation")  # fmt: skip
    out, fresh = _written(call, entry, kinds, shape, x.dtype)
    counts = is_float(x.dtype) or not x.dtype or is_float(out[0].dtype)
    n_in, n_out = x.numel, out[0].numel
    vector = n_in * (entry.per_input + _functions(entry.functions)) + n_out * (
        entry.per_output + _functions(entry.last)
    )
    return account(
        inputs, out, vector=float(vector) if counts else 0.0,
        special=float(
            n_in * transcendentals_in(entry.functions) + n_out * transcendentals_in(entry.last)
        ) if counts else 0.0,
        dtype=arithmetic_dtype(x.dtype), op_class="normalisation", fresh=fresh,
    )  # fmt: skip


def _written(
    call: OpCall, entry: Reduction, kinds: tuple[str, ...], shape: tuple[int, ...], dtype: str
) -> tuple[list[TensorSpec], bool]:
    given = destinations(call, entry.arity)
    if given:
        return given, False
    if call.outputs:
        return list(call.outputs), True
    # ``sum(self, dtype)``, ``sum(self, dims, keepdim, dtype)``; norms have ``p`` before.
    at = 1 if len(call.args) == 2 and entry.arity == 4 else entry.keep_at + 1
    wanted = dtype_argument(call.args[at]) if at < min(len(call.args), entry.arity) else None
    return [TensorSpec(shape, wanted or _result_dtype(kind, dtype)) for kind in kinds], True


def _elementwise_extremum(call: OpCall, inputs: list[TensorSpec]) -> Work | None:
    twin = "aten::maximum" if call.name.endswith("max") else "aten::minimum"
    return pointwise(OpCall(twin, call.args, call.outputs, call.overload))


def scan(call: OpCall) -> Work:
    """Any operator of ``SCANS``, also in place."""
    entry = SCANS[call.name.removeprefix("aten::").removesuffix("_")]
    x = need(call, 0)
    dtypes = [_result_dtype(kind, x.dtype) for kind in entry.dtypes]
    out, fresh = results(call, entry.arity, x.shape, dtypes[0])
    if fresh and not call.outputs:
        out = [TensorSpec(x.shape, dtype) for dtype in dtypes]
    counts = is_float(x.dtype) or not x.dtype
    return account(
        [x], out,
        vector=x.numel * (entry.per_input + _functions(entry.functions)) if counts else 0.0,
        special=float(x.numel * transcendentals_in(entry.functions)) if counts else 0.0,
        dtype=arithmetic_dtype(x.dtype), op_class="normalisation", fresh=fresh,
    )  # fmt: skip


def rows_reduced(call: OpCall) -> Space:
    """What an operator of ``REDUCTIONS`` iterates over."""
    name = call.name.removeprefix("aten::")
    if name in ("max", "min") and len(call.tensors) > 1:
        return Space(Role.POINTWISE, result_elements(call))
    x = tensor_of(call, 0)
    rank = len(x.shape)
    if call.outputs:
        listed = integers(call.args[1]) if len(call.args) > 1 else None
        inner = not listed or (rank - 1) in {d % max(1, rank) for d in listed}
        results = max(1, call.outputs[0].numel)
        return Space(Role.REDUCTION, x.numel, max(1, x.numel // results), inner)
    dims_at = REDUCTIONS[name].dims_at
    listed = integers(call.args[dims_at]) if len(call.args) > dims_at else None
    if not listed:
        # Without the dimensions (a trace that left them out) all are reduced, or nobody knows.
        if len(call.args) > dims_at and call.args[dims_at] is not None:
            raise ValueError("dimensions not recorded")
        return Space(Role.REDUCTION, x.numel, x.numel)
    row = prod(x.shape[d] for d in listed)
    return Space(Role.REDUCTION, x.numel, row, (rank - 1) in {d % rank for d in listed})


def _scanned(call: OpCall) -> Space:
    return Space(Role.EXTERN, tensor_of(call, 0).numel)


for _name in REDUCTIONS:
    add_formula((f"aten::{_name}",), reduction)
for _name in SCANS:
    add_formula((f"aten::{_name}", f"aten::{_name}_"), scan)
describe(" ".join(REDUCTIONS), fusion=rows_reduced)
describe(" ".join(f"{name} {name}_" for name in SCANS), fusion=_scanned)
describe(
    "sum mean amax amin max min norm linalg_vector_norm var std var_mean std_mean prod argmax "
    "argmin any all nansum aminmax _aminmax",
    passes="reduction",
)
describe("logsumexp special_logsumexp", passes="log_sum_exp")
describe("count_nonzero", passes="count_nonzero")
describe(f"{' '.join(SCANS)} _cummax_helper _cummin_helper", passes="scan")
describe("argmin max min", rate="argmax")
describe("cumprod", rate="cumsum")
