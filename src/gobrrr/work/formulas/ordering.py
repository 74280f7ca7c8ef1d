"""Sorting, selection and counting. A radix sort compares nothing, so a sort has no FLOPs."""

from __future__ import annotations

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import formula, qualified
from gobrrr.work.traffic import account, arithmetic_dtype, destinations, is_float, need, tensors_in
from gobrrr.work.traits import describe


def _ordering(
    reads: list[TensorSpec], writes: list[TensorSpec], flops: float = 0.0, *, fresh: bool = True
) -> Work:
    dtype = reads[0].dtype
    return account(
        reads, writes, vector=flops if is_float(dtype) or not dtype else 0.0,
        dtype=arithmetic_dtype(dtype), op_class="other", fresh=fresh,
    )  # fmt: skip


@formula(*qualified("sort msort argsort"))
def sort(call: OpCall) -> Work:
    """Read once, values and indices written once (``argsort``: indices)."""
    x = need(call, 0)
    given = destinations(call, 1)
    values = [] if "argsort" in call.name else [TensorSpec(x.shape, x.dtype)]
    indices = [] if "msort" in call.name else [TensorSpec(x.shape, "int64")]
    out = given or list(call.outputs or [*values, *indices])
    return _ordering([x], out, fresh=not given)


@formula("aten::topk", "aten::kthvalue")
def topk(call: OpCall) -> Work:
    """``(self, k, dim, ...)``: at least one comparison per element."""
    x = need(call, 0)
    given = destinations(call, 5)
    out = given or list(call.outputs or ())
    if not out:
        k = call.args[1]
        if not isinstance(k, int):
            raise ValueError("k was not recorded")
        dim = call.args[2] if len(call.args) > 2 and isinstance(call.args[2], int) else -1
        shape = list(x.shape)
        if shape:
            shape[dim] = 1 if call.name.endswith("kthvalue") else k
        out = [TensorSpec(tuple(shape), x.dtype), TensorSpec(tuple(shape), "int64")]
    return _ordering([x], out, float(x.numel), fresh=not given)


@formula(
    *qualified(
        "_unique _unique2 unique_dim unique_consecutive unique_dim_consecutive bincount histc "
        "histogram _histogramdd_bin_edges"
    )
)
def counted(call: OpCall) -> Work | None:
    """How much is written only the output tells."""
    if not call.outputs:
        return None
    return _ordering(list(call.tensors), list(call.outputs))


@formula("aten::searchsorted", "aten::bucketize")
def searchsorted(call: OpCall) -> Work:
    """``searchsorted(sorted, values)``, ``bucketize(values, boundaries)``: bisection."""
    first, second = need(call, 0), need(call, 1)
    table, values = (first, second) if call.name.endswith("searchsorted") else (second, first)
    out = list(call.outputs or [TensorSpec(values.shape, "int64")])
    depth = max(table.shape[-1], 1).bit_length() if table.shape else 1
    touched = TensorSpec((min(table.unique_elements, values.numel * depth),), table.dtype)
    return _ordering([values, touched], out, float(values.numel * depth))


@formula("aten::isin")
def isin(call: OpCall) -> Work:
    """``(elements, test_elements)``: a bool for each element."""
    inputs = tensors_in(call.args[:2])
    out = list(call.outputs or [TensorSpec(inputs[0].shape, "bool")])
    return _ordering(inputs, out)


describe("sort argsort unique _unique2 unique_dim", passes="sort")
describe("topk", passes="top_k")
describe("kthvalue median nanmedian", passes="select")
describe("isin", passes="membership")
