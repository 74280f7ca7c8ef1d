"""Copies, casts, concatenation, and creation of tensors: bytes and no FLOPs."""

from __future__ import annotations

from math import ceil, prod

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import Work
from gobrrr.work.registry import add_formula, formula, qualified
from gobrrr.work.traffic import (
    account,
    arithmetic_dtype,
    destinations,
    integers,
    is_inplace,
    is_sparse,
    list_at,
    need,
    nothing,
    results,
    tensors_in,
)
from gobrrr.work.traits import Role, Space, describe, result_elements

# Numbers of ``c10::ScalarType``, which traces record for dtype arguments.
SCALAR_TYPES: dict[int, str] = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32",
    7: "float64", 8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 12: "qint8",
    13: "quint8", 14: "qint32", 15: "bfloat16", 23: "float8_e5m2", 24: "float8_e4m3fn",
    25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz", 27: "uint16", 28: "uint32", 29: "uint64",
    44: "float8_e8m0fnu",
}  # fmt: skip
_NAMES = frozenset(SCALAR_TYPES.values())


def dtype_argument(arg: Arg) -> str | None:
    """The dtype that an argument names: ``"bfloat16"``, or 15 in a trace."""
    if isinstance(arg, str):
        return arg if arg in _NAMES else None
    if isinstance(arg, int) and not isinstance(arg, bool):
        return SCALAR_TYPES.get(arg)
    return None


def moved(
    reads: list[TensorSpec],
    writes: list[TensorSpec],
    updates: list[TensorSpec] | None = None,
    *,
    fresh: bool = True,
) -> Work:
    """Work of a call that only moves data."""
    dtype = (writes or reads or [TensorSpec((), "")])[0].dtype
    return account(
        reads, writes, updates or (), dtype=arithmetic_dtype(dtype), op_class="movement",
        fresh=fresh,
    )  # fmt: skip


@formula(
    *qualified(
        "clone _clone flip roll rot90 tril triu tril_ triu_ permute_copy transpose_copy t_copy "
        "view_copy _reshape_copy alias_copy detach_copy unsqueeze_copy squeeze_copy "
        "_conj_copy _neg_view_copy view_as_real_copy view_as_complex_copy lift_fresh_copy "
        "_copy_from _copy_from_and_resize _pin_memory pin_memory channel_shuffle "
        "native_channel_shuffle pixel_shuffle pixel_unshuffle _to_dense to_dense to_sparse "
        "to_mkldnn _mkldnn_transpose _reshape_alias_copy values_copy indices_copy "
        "mkldnn_reorder_conv2d_weight mkldnn_reorder_conv3d_weight")
)  # fmt: skip
def copy_of_self(call: OpCall) -> Work:
    """A tensor of the same elements in another order or place; of a sparse one, its entries."""
    if call.args and is_sparse(call.args[0]) and call.outputs:
        return moved(list(call.tensors), list(call.outputs))
    x = need(call, 0)
    out, fresh = results(call, 99, x.shape, x.dtype)
    return moved([x], out, fresh=fresh)


@formula("aten::copy_")
def copy_into(call: OpCall) -> Work:
    """``(self, src)``: ``src`` read, ``self`` written and not read; a cast if the dtypes differ."""
    return moved([need(call, 1)], [need(call, 0)], fresh=False)


@formula("aten::copy")
def copy(call: OpCall) -> Work:
    """``(self, src)``: a new tensor like ``self`` with the values of ``src``."""
    x = need(call, 0)
    out, fresh = results(call, 3, x.shape, x.dtype)
    return moved([need(call, 1)], out, fresh=fresh)


@formula("aten::_to_copy")
def to_copy(call: OpCall) -> Work:
    """``(self, dtype, layout, device, ...)``: a cast, or a copy to another device or layout."""
    x = need(call, 0)
    wanted = dtype_argument(call.args[1]) if len(call.args) > 1 else None
    out, _ = results(call, 99, x.shape, wanted or x.dtype)
    return moved([x], out)


@formula("aten::to", composite=True)
def to(call: OpCall) -> Work:
    """Copies only if something differs; what it returns, or the dtype asked for, tells."""
    x = need(call, 0)
    if _returns_self(call, x):
        return nothing()
    wanted = next((d for arg in call.args[1:3] if (d := dtype_argument(arg))), None)
    if not call.outputs and wanted == x.dtype:
        return nothing()
    return moved([x], list(call.outputs or [TensorSpec(x.shape, wanted or x.dtype)]))


def _returns_self(call: OpCall, x: TensorSpec) -> bool:
    known = bool(call.outputs) and x.storage is not None
    return known and (call.outputs or ())[0].storage == x.storage


@formula(*qualified("contiguous reshape reshape_as flatten_dense_tensors ravel"), composite=True)
def contiguous(call: OpCall) -> Work:
    """A view where the layout allows it, else a copy."""
    x = need(call, 0)
    if _returns_self(call, x):
        return nothing()
    if x.storage is None and x.is_contiguous and "channels_last" not in call.args:
        return nothing()
    return moved([x], list(call.outputs or [TensorSpec(x.shape, x.dtype)]))


@formula("aten::cat", "aten::_cat", "aten::concat", "aten::concatenate")
def cat(call: OpCall) -> Work:
    """``(tensors, dim)``: all read, all written."""
    parts = list_at(call, 0)
    # An empty 1-D tensor is skipped, whatever the others' rank.
    shaped = [spec for spec in parts if spec.numel] or parts
    dim = call.args[1] if len(call.args) > 1 and isinstance(call.args[1], int) else 0
    shape = list(shaped[0].shape)
    shape[dim] = sum(spec.shape[dim] for spec in shaped)
    out, fresh = results(call, 2, shape, shaped[0].dtype)
    return moved(parts, out, fresh=fresh)


@formula(*qualified("stack _stack block_diag hstack vstack dstack column_stack"))
def stack(call: OpCall) -> Work:
    """``(tensors, dim)``: all read, all written."""
    parts = list_at(call, 0)
    out, fresh = results(call, 2, (len(parts), *parts[0].shape), parts[0].dtype)
    return moved(parts, out, fresh=fresh)


@formula(
    *qualified("split_copy split_with_sizes_copy unbind_copy unsafe_chunk_copy _unsafe_split_copy")
)
def pieces(call: OpCall) -> Work:
    """One tensor into many: as many bytes written as read."""
    parts = tensors_in(call.args[:1])
    given = destinations(call, 1)
    if given:
        return moved(parts, given, fresh=False)
    return moved(parts, list(call.outputs or parts))


@formula("aten::repeat", "aten::tile", "aten::expand_copy")
def repeat(call: OpCall) -> Work | None:
    """``(self, repeats)``: the input read once, its repetitions written."""
    x, times = need(call, 0), integers(call.args[1])
    if call.outputs:
        return moved([x], list(call.outputs))
    if times is None:
        return None
    if call.name == "aten::expand_copy":
        shape = [x.shape[i - len(times)] if n == -1 else n for i, n in enumerate(times)]
    else:
        rank = max(len(times), len(x.shape))
        sizes = (1,) * (rank - len(x.shape)) + x.shape
        shape = [n * r for n, r in zip(sizes, (1,) * (rank - len(times)) + times)]
    return moved([x], [TensorSpec(tuple(shape), x.dtype)])


@formula(
    *qualified(
        "constant_pad_nd pad reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
        "replication_pad2d replication_pad3d"
    )
)
def pad(call: OpCall) -> Work | None:
    """``(self, pad)``: pairs from the last dimension on; negative ones cut."""
    x, sizes = need(call, 0), integers(call.args[1])
    given = destinations(call, 2)
    if given or call.outputs:
        return moved([x], given or list(call.outputs or ()), fresh=not given)
    if sizes is None:
        return None
    shape = list(x.shape)
    for i in range(len(sizes) // 2):
        shape[-1 - i] += sizes[2 * i] + sizes[2 * i + 1]
    return moved([x], [TensorSpec(tuple(shape), x.dtype)])


@formula(
    *qualified(
        "slice_copy select_copy narrow_copy diagonal_copy as_strided_copy unfold_copy "
        "diag diag_embed repeat_interleave im2col lu_unpack"
    )
)
def part_copy(call: OpCall) -> Work | None:
    """A part of ``self``, or its elements repeated: what is written was read, at most once each.

    Without the output recorded the size is unknown.
    """
    x = need(call, 0)
    out = list(call.outputs or _part_shape(call, x))
    if not out:
        return None
    n = min(out[0].numel, x.unique_elements)
    return moved([TensorSpec((n,), x.dtype)], out)


def _part_shape(call: OpCall, x: TensorSpec) -> list[TensorSpec]:
    if call.name == "aten::im2col":
        kernel, dilation, padding, stride = (integers(arg) for arg in call.args[1:5])
        if kernel is None or dilation is None or padding is None or stride is None:
            return []
        places = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(x.shape[-2:], kernel, dilation, padding, stride)
        ]
        shape = (*x.shape[:-3], x.shape[-3] * prod(kernel), prod(places))
        return [TensorSpec(shape, x.dtype)]
    if call.name == "aten::diag_embed" and isinstance(call.args[1], int):
        n = x.shape[-1] + abs(call.args[1])
        return [TensorSpec((*x.shape[:-1], n, n), x.dtype)]
    return []


@formula(*qualified("slice_scatter select_scatter diagonal_scatter as_strided_scatter"))
def scatter_copy(call: OpCall) -> Work:
    """``self`` with a part replaced by ``src``: what is replaced need not be read."""
    x, src = need(call, 0), need(call, 1)
    kept = TensorSpec((min(max(x.numel - src.numel, 0), x.unique_elements),), x.dtype)
    return moved([kept, src], list(call.outputs or [TensorSpec(x.shape, x.dtype)]))


@formula(
    *qualified(
        "reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward "
        "replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward "
    )
)
def pad_backward(call: OpCall) -> Work:
    """``(grad_output, self, padding)``: the gradient added up into the shape of ``self``."""
    grad, x = need(call, 0), need(call, 1)
    out = list(call.outputs or [TensorSpec(x.shape, grad.dtype)])
    return account(
        [grad], out, vector=float(max(grad.numel - x.numel, 0)),
        dtype=arithmetic_dtype(grad.dtype), op_class="movement",
    )  # fmt: skip


@formula(
    *qualified("slice_backward select_backward diagonal_backward unfold_backward"),
)
def view_backward(call: OpCall) -> Work | None:
    """``(grad_output, input_sizes, ...)``: zeros, and the gradient written in."""
    grad, sizes = need(call, 0), integers(call.args[1])
    if call.outputs:
        return moved([grad], list(call.outputs))
    return None if sizes is None else moved([grad], [TensorSpec(sizes, grad.dtype)])


@formula(
    *qualified(
        "_pack_padded_sequence _pad_packed_sequence _nested_from_padded_tensor to_padded_tensor "
        "_jagged_to_padded_dense_forward _padded_dense_to_jagged_forward "
        "_nested_tensor_from_tensor_list _nested_tensor_from_mask masked_scatter_backward one_hot"
    )
)
def repack(call: OpCall) -> Work | None:
    """Padded into packed and back: lengths are values, so only the result tells the size."""
    if not call.outputs:
        return None
    first, *others = call.tensors
    # Padding is neither read nor, on the way back, found in the input.
    n = min(first.unique_elements, call.outputs[0].numel)
    return moved([TensorSpec((n,), first.dtype), *others], list(call.outputs))


# Creation


@formula(
    *qualified(
        "fill_ zero_ fill zero zeros_like ones_like full_like new_zeros new_ones new_full "
        "masked_zero_ eye_ fill_diagonal_"
    )
)
def fill(call: OpCall) -> Work | None:
    """Writes, reads nothing. Like ``self``; for ``new_*`` of the size given."""
    x = need(call, 0)
    if call.name == "aten::fill_diagonal_":
        return moved([], [TensorSpec((min(x.shape),), x.dtype)], fresh=False)
    if is_inplace(call):
        return moved([], [x], fresh=False)
    if call.outputs:
        return moved([], list(call.outputs))
    # ``new_full(self, size, value, dtype)``, ``full_like(self, value, dtype)``, others no value.
    is_new = call.name.startswith("aten::new_")
    dtype_at = 1 + is_new + ("full" in call.name)
    wanted = dtype_argument(call.args[dtype_at]) if len(call.args) > dtype_at else None
    sizes = integers(call.args[1]) if is_new else x.shape
    return None if sizes is None else moved([], [TensorSpec(sizes, wanted or x.dtype)])


@formula(*qualified("zeros ones full eye arange range linspace logspace scalar_tensor tri"
                    " tril_indices triu_indices hann_window hamming_window bartlett_window"
                    " blackman_window kaiser_window vander"))  # fmt: skip
def create(call: OpCall) -> Work | None:
    """Writes the result. Without it recorded: ``size`` and a dtype, else unknown."""
    given = destinations(call, 0)
    if given and not call.outputs:
        return moved([], given, fresh=False)
    if call.outputs:
        return moved([], list(call.outputs))
    name = call.name.removeprefix("aten::")
    if name == "scalar_tensor":
        wanted = dtype_argument(call.args[1]) if len(call.args) > 1 else None
        return moved([], [TensorSpec((), wanted or "float32")])
    values, wanted = creation_arguments(call)
    sizes = _created_shape(name, values)
    if sizes is None:
        return None
    if wanted is None and name == "arange" and all(isinstance(v, int) for v in values):
        wanted = "int64"
    return moved([], [TensorSpec(sizes, wanted or "float32")])


def creation_arguments(call: OpCall) -> tuple[tuple[Arg, ...], str | None]:
    """What comes before the last four arguments (dtype, layout, device, pin_memory); the dtype."""
    cut = max(len(call.args) - 4, 1)
    return call.args[:cut], dtype_argument(call.args[cut]) if len(call.args) > cut else None


def _created_shape(name: str, values: tuple[Arg, ...]) -> tuple[int, ...] | None:
    if name in ("zeros", "ones", "full"):
        return integers(values[0])
    numbers = [v for v in values if isinstance(v, (int, float))]
    if len(numbers) < len(values):
        return None
    if name == "arange":
        start, end, step = {1: (0, *numbers, 1), 2: (*numbers, 1)}.get(len(numbers), numbers)
        return (max(0, ceil((end - start) / step)),)
    if name == "eye":
        return (int(numbers[0]), int(numbers[-1]))
    if name in ("linspace", "logspace"):
        return (int(numbers[2]),)
    return (int(numbers[0]),) if name.endswith("_window") else None


@formula("aten::_local_scalar_dense")
def scalar(call: OpCall) -> Work:
    """One element read by the host."""
    x = need(call, 0)
    return moved([TensorSpec((), x.dtype)], [])


add_formula(qualified("item is_nonzero"), scalar, composite=True)


# Of more inputs Inductor copies each into place (``config.max_pointwise_cat_inputs``).
_MOST_JOINED = 8


def _joined(call: OpCall) -> Space:
    role = Role.POINTWISE if len(call.tensors) <= _MOST_JOINED else Role.EXTERN
    return Space(role, result_elements(call))


describe("cat stack", fusion=_joined)
# Copies and fills become expressions with computed indices.
describe(
    "clone _clone flip roll rot90 tril triu tril_ triu_ copy_ copy _to_copy to contiguous reshape "
    "repeat tile constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d slice_scatter select_scatter "
    "diagonal_scatter slice_backward select_backward fill_ zero_ fill zero zeros_like ones_like "
    "full_like new_zeros new_ones new_full zeros ones full eye arange linspace scalar_tensor "
    "lift_fresh_copy one_hot", fusion=Role.POINTWISE,
)  # fmt: skip
describe("cat stack roll flip", passes="join")
describe("constant_pad_nd", passes="padding")
