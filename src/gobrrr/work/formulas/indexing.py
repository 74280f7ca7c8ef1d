"""Gather, scatter, embedding: only the rows and elements that the indices name are touched.

How many of them are distinct depends on the indices' values, which nobody recorded. Each index is
taken to name its own element, up to the size of the table; where indices repeat, fewer bytes move.
"""

from __future__ import annotations

from collections.abc import Sequence

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import OpClass, Work
from gobrrr.work.registry import formula, qualified
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    broadcast,
    destinations,
    is_float,
    is_inplace,
    need,
    product,
    tensor_at,
    tensors_in,
)
from gobrrr.work.traits import Role, describe


def touched(table: TensorSpec, elements: int) -> TensorSpec:
    """The part of a table that ``elements`` accesses can touch."""
    return TensorSpec((min(elements, table.unique_elements),), table.dtype)


def _move(
    reads: Sequence[TensorSpec],
    writes: Sequence[TensorSpec] = (),
    updates: Sequence[TensorSpec] = (),
    *,
    vector: float = 0.0,
    dtype: str,
    fresh: bool = True,
    op_class: OpClass = "movement",
) -> Work:
    return account(
        reads, writes, updates, vector=vector if is_float(dtype) or not dtype else 0.0,
        dtype=arithmetic_dtype(dtype), op_class=op_class, fresh=fresh,
    )  # fmt: skip


def _result(call: OpCall, arity: int, shape: Sequence[int], dtype: str) -> tuple[TensorSpec, bool]:
    given = destinations(call, arity)
    if given:
        return given[0], False
    if call.outputs:
        return call.outputs[0], True
    return TensorSpec(tuple(shape), dtype), True


# Reading by index


@formula("aten::embedding")
def embedding(call: OpCall) -> Work:
    """``(weight (v, d), indices, ...)`` -> ``(*indices, d)``: one row read per index."""
    weight, indices = need(call, 0), need(call, 1)
    width = product(weight.shape[1:])
    out, fresh = _result(call, 5, (*indices.shape, *weight.shape[1:]), weight.dtype)
    rows = touched(weight, indices.numel * width)
    return _move([rows, indices], [out], dtype=weight.dtype, fresh=fresh)


@formula("aten::embedding_renorm_")
def embedding_renorm(call: OpCall) -> Work:
    """``(weight (v, d), indices, max_norm, norm_type)``: the norm of each row that is named.

    The least: no row is too long, and none is written.
    """
    weight, indices = need(call, 0), need(call, 1)
    rows = touched(weight, indices.numel * product(weight.shape[1:]))
    return _move([rows, indices], vector=2.0 * rows.numel, dtype=weight.dtype, fresh=False)


@formula("aten::index_select")
def index_select(call: OpCall) -> Work:
    """``(self, dim, index)``."""
    x, index = need(call, 0), need(call, 2)
    dim = call.args[1]
    shape = list(x.shape)
    if isinstance(dim, int) and shape:
        shape[dim] = index.numel
    out, fresh = _result(call, 3, shape, x.dtype)
    return _move([touched(x, out.numel), index], [out], dtype=x.dtype, fresh=fresh)


@formula("aten::gather")
def gather(call: OpCall) -> Work:
    """``(self, dim, index)`` -> the shape of ``index``."""
    x, index = need(call, 0), need(call, 2)
    out, fresh = _result(call, 4, index.shape, x.dtype)
    return _move([touched(x, index.numel), index], [out], dtype=x.dtype, fresh=fresh)


@formula("aten::take", "aten::_unsafe_masked_index")
def take(call: OpCall) -> Work:
    """``(self, index)`` of flat indices. ``_unsafe_masked_index(self, mask, indices, fill)``."""
    if call.name != "aten::take":
        x = need(call, 0)
        others = tensors_in(call.args[1:])
        out, fresh = _result(call, 99, broadcast([s.shape for s in others]), x.dtype)
        return _move([touched(x, out.numel), *others], [out], dtype=x.dtype, fresh=fresh)
    x, index = need(call, 0), need(call, 1)
    out, fresh = _result(call, 2, index.shape, x.dtype)
    return _move([touched(x, index.numel), index], [out], dtype=x.dtype, fresh=fresh)


def _index_shape(x: TensorSpec, arg: Arg) -> tuple[int, ...] | None:
    """Sizes of what ``x[arg]`` names, indexed dimensions first; ``None`` in ``arg`` takes all."""
    listed = arg if isinstance(arg, tuple) else ()
    indices = tensors_in(listed)
    # A mask selects a number of elements that only its values tell. Traces write an absent index
    # like one without dimensions, and no dtypes of lists.
    if any(spec.dtype in ("bool", "uint8") or not (spec.dtype or spec.shape) for spec in indices):
        return None
    whole = [n for n, index in zip(x.shape, listed) if index is None]
    return (*broadcast([spec.shape for spec in indices]), *whole, *x.shape[len(listed) :])


@formula("aten::index", "aten::_unsafe_index")
def index(call: OpCall) -> Work | None:
    """``(self, indices)``: one element read for each of the result."""
    x = need(call, 0)
    indices = tensors_in(call.args[1:2])
    if call.outputs or destinations(call, 2):
        out, fresh = _result(call, 2, (), x.dtype)
    else:
        shape = _index_shape(x, call.args[1])
        if shape is None:
            return None
        out, fresh = TensorSpec(shape, x.dtype), True
    return _move([touched(x, out.numel), *indices], [out], dtype=x.dtype, fresh=fresh)


@formula("aten::masked_select", "aten::nonzero", "aten::nonzero_static", "aten::argwhere")
def select_by_value(call: OpCall) -> Work | None:
    """All of the inputs is read; how much is written only the output tells."""
    inputs = call.tensors
    if not call.outputs:
        return None
    return _move(inputs, call.outputs, dtype="int64")


# Writing by index


@formula(*qualified("index_put_ index_put _index_put_impl_ _unsafe_index_put"))
def index_put(call: OpCall) -> Work:
    """``(self, indices, values, accumulate)``.

    In place: the elements named are written, and read first if they accumulate. Out of place the
    whole tensor is copied as well.
    """
    x, values = need(call, 0), need(call, 2)
    indices = tensors_in(call.args[1:2])
    accumulate = len(call.args) > 3 and call.args[3] is True
    count = values.numel
    if not any(spec.dtype in ("bool", "uint8") for spec in indices):
        rows = _index_shape(x, call.args[1])
        # Values broadcast over what the indices name.
        count = max(count, product(rows)) if rows is not None else count
    return _put(call, x, [values, *indices], count, accumulate)


def _put(
    call: OpCall, x: TensorSpec, reads: list[TensorSpec], count: int, accumulate: bool
) -> Work:
    part = touched(x, count)
    adds = float(count) if accumulate else 0.0
    if is_inplace(call):
        if accumulate:
            return _move(reads, updates=[part], vector=adds, dtype=x.dtype, fresh=False)
        return _move(reads, [part], dtype=x.dtype, fresh=False)
    out, fresh = _result(call, 99, x.shape, x.dtype)
    return _move([x, *reads], [out], vector=adds, dtype=x.dtype, fresh=fresh)


@formula(*qualified("scatter_add_ scatter_add scatter_reduce_ scatter_reduce"))
def scatter_add(call: OpCall) -> Work:
    """``(self, dim, index, src)``: ``src`` and the elements named are read, summed, written."""
    x, index, src = need(call, 0), need(call, 2), need(call, 3)
    return _put(call, x, [_like_index(src, index), index], index.numel, True)


def _like_index(src: TensorSpec, index: TensorSpec) -> TensorSpec:
    # ``src`` may be larger than ``index``: only as many elements are read.
    return src if src.unique_elements <= index.numel else TensorSpec(index.shape, src.dtype)


@formula(*qualified("scatter_ scatter"))
def scatter(call: OpCall) -> Work:
    """``(self, dim, index, src or value)``."""
    x, index = need(call, 0), need(call, 2)
    src = tensor_at(call, 3)
    reads = [index] if src is None else [_like_index(src, index), index]
    return _put(call, x, reads, index.numel, "reduce" in call.overload)


@formula(*qualified("index_add_ index_add index_reduce_ index_reduce"))
def index_add(call: OpCall) -> Work:
    """``(self, dim, index, source, alpha)``."""
    x, index, source = need(call, 0), need(call, 2), need(call, 3)
    return _put(call, x, [source, index], source.numel, True)


@formula("aten::segment_reduce", "aten::_segment_reduce_backward")
def segment_reduce(call: OpCall) -> Work | None:
    """``(data, reduce, lengths, ...)``: an operation per element; ``(grad, output, data, ...)``."""
    if call.outputs is None:
        return None
    x = need(call, 2 if call.name.endswith("backward") else 0)
    return _move(call.tensors, call.outputs, vector=float(x.numel), dtype=x.dtype,
                 op_class="normalisation")  # fmt: skip


@formula(*qualified("index_copy_ index_copy index_fill_ index_fill"))
def index_copy(call: OpCall) -> Work:
    """``(self, dim, index, source or value)``."""
    x, index = need(call, 0), need(call, 2)
    source = tensor_at(call, 3)
    if source is None or not source.shape:
        dim = call.args[1]
        width = x.numel // max(x.shape[dim], 1) if isinstance(dim, int) and x.shape else 1
        return _put(call, x, [index], index.numel * width, False)
    return _put(call, x, [source, index], source.numel, False)


@formula(*qualified("masked_scatter_ masked_scatter put_ put"))
def masked_scatter(call: OpCall) -> Work:
    """``(self, mask, source)``; ``put_(self, index, source, accumulate)``."""
    x, mask, source = need(call, 0), need(call, 1), need(call, 2)
    accumulate = len(call.args) > 3 and call.args[3] is True
    return _put(call, x, [source, mask], source.numel, accumulate)


@formula("aten::_unsafe_masked_index_put_accumulate")
def masked_index_put(call: OpCall) -> Work:
    """``(self, mask, indices, values)``."""
    x, values = need(call, 0), need(call, 3)
    return _put(call, x, [*tensors_in(call.args[1:3]), values], values.numel, True)


# Gradients of reading by index


@formula("aten::embedding_dense_backward", "aten::embedding_backward")
def embedding_backward(call: OpCall) -> Work:
    """``(grad, indices, num_weights, ...)``: zeros of ``(v, d)`` with the rows added in."""
    grad, indices = need(call, 0), need(call, 1)
    width = grad.shape[-1]
    rows = call.args[2]
    if call.outputs:
        out = call.outputs[0]
    elif isinstance(rows, int):
        out = TensorSpec((rows, width), grad.dtype)
    else:
        raise ValueError("num_weights was not recorded")
    return _move([grad, indices], [out], vector=float(grad.numel), dtype=grad.dtype)


@formula("aten::gather_backward", "aten::index_select_backward", "aten::take_along_dim_backward")
def gather_backward(call: OpCall) -> Work:
    """Zeros of the input's shape with the gradient added in."""
    grad = need(call, 0)
    if not call.outputs:
        raise ValueError("the output was not recorded")
    return _move(call.tensors, call.outputs, vector=float(grad.numel), dtype=grad.dtype)


@formula("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
def embedding_bag(call: OpCall) -> Work:
    """``(weight, indices, offsets, scale_grad, mode, sparse, per_sample_weights, ...)``.

    Rows are read and added up, one addition an element (two with weights); one row per bag
    written. The three index outputs are written where recorded.
    """
    weight, indices, offsets = need(call, 0), need(call, 1), need(call, 2)
    scale = tensor_at(call, 6)
    width = weight.shape[1]
    last = len(call.args) > 7 and call.args[7] is True
    bags = offsets.numel - (1 if last else 0)
    outputs = call.outputs or (TensorSpec((bags, width), weight.dtype),)
    reads = [touched(weight, indices.numel * width), indices, offsets]
    if scale is not None:
        reads.append(scale)
    flops = float(indices.numel * width * (1 if scale is None else 2))
    return _move(reads, outputs, vector=flops, dtype=weight.dtype)


@formula(
    "aten::_embedding_bag_dense_backward",
    "aten::_embedding_bag_backward",
    "aten::_embedding_bag_sparse_backward",
)
def embedding_bag_backward(call: OpCall) -> Work:
    """``(grad (bags, d), indices, offset2bag, ..., num_weights, ...)``: dense ``(v, d)``."""
    grad, indices = need(call, 0), need(call, 1)
    rows = call.args[5 if call.name.endswith("dense_backward") else 6]
    if call.outputs:
        out = call.outputs
    elif isinstance(rows, int) and not call.name.endswith("sparse_backward"):
        out = (TensorSpec((rows, grad.shape[-1]), grad.dtype),)
    else:
        raise ValueError("neither the output nor num_weights was recorded")
    others = [spec for spec in call.tensors if spec is not grad]
    flops = float(indices.numel * grad.shape[-1])
    return _move([grad, *others], out, vector=flops, dtype=grad.dtype)


@formula(*qualified("_embedding_bag_per_sample_weights_backward"))
def per_sample_weights_backward(call: OpCall) -> Work:
    """``(grad, weight, indices, offsets, ...)``: a dot product of two rows per index."""
    grad, weight, indices = need(call, 0), need(call, 1), need(call, 2)
    width = weight.shape[1]
    out = call.outputs or (TensorSpec(indices.shape, grad.dtype),)
    return _move(
        [grad, touched(weight, indices.numel * width), indices], out,
        vector=2.0 * indices.numel * width, dtype=grad.dtype,
    )  # fmt: skip


# Gathers become expressions with computed indices.
describe("embedding index_select gather index take _unsafe_index", fusion=Role.POINTWISE)
describe(
    "scatter_add scatter_add_ index_add index_add_ scatter_reduce scatter_reduce_ put put_",
    passes="scatter",
)
describe(
    "gather index embedding index_select take scatter scatter_ masked_scatter index_copy_",
    passes="gather",
)
describe("index_put index_put_ _index_put_impl_", passes="index_put")
describe("embedding_dense_backward", passes="embedding_backward")
describe("embedding index_select gather _unsafe_index", rate="index")
describe(
    "scatter_add index_add_ scatter_add_ index_put index_put_ _index_put_impl_", rate="index_add"
)
