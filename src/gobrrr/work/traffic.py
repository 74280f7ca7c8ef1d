"""Bytes that a call must move, from the tensors it reads, writes and updates in place."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec
from gobrrr.work.estimate import OpClass, Work

_FLOAT_RANK = {
    "float8_e5m2": 0, "float8_e4m3fn": 0, "float8_e5m2fnuz": 0, "float8_e4m3fnuz": 0,
    "float8_e8m0fnu": 0, "float16": 1, "bfloat16": 1, "float32": 2, "float64": 3,
}  # fmt: skip
_COMPLEX_RANK = {"complex32": 1, "complex64": 2, "complex128": 3}
_INTEGER_RANK = {
    "uint8": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 3, "uint32": 3, "int64": 4,
    "uint64": 4,
}  # fmt: skip
_REAL_OF = {"complex32": "float32", "complex64": "float32", "complex128": "float64"}


def account(
    reads: Sequence[TensorSpec],
    writes: Sequence[TensorSpec] = (),
    updates: Sequence[TensorSpec] = (),
    *,
    matrix: float | None = 0.0,
    vector: float | None = 0.0,
    special: float = 0.0,
    dtype: str,
    op_class: OpClass,
    fresh: bool = True,
) -> Work:
    """Work of a call that reads, writes and updates (reads, then writes) these tensors.

    A tensor named twice with the same storage, offset and layout moves once each way. ``fresh``:
    ``writes`` are newly allocated (those that share a known storage with an input are not).
    ``matrix=None`` says that no FLOPs are known.

    Raises:
        ValueError: an amount comes out negative (a window larger than its tensor).
    """
    touched: set[object] = set()
    read = written = unique = new = 0
    read_known = written_known = True
    for spec in (*reads, *updates):
        size = spec.unique_bytes
        if spec.storage is not None and spec.offset is not None:
            key = (spec.storage, spec.offset, spec.shape, spec.strides)
            if key in touched:
                continue
            touched.add(key)
        if size is None:
            read_known = False
        else:
            read += size
    unique = read
    for spec in updates:
        size = spec.unique_bytes
        if size is None:
            written_known = False
        else:
            written += size
    sources = {spec.storage for spec in reads} if fresh else set()
    for spec in writes:
        size = spec.unique_bytes
        if size is None:
            written_known = False
            continue
        written += size
        if (spec.storage, spec.offset, spec.shape, spec.strides) not in touched:
            unique += size
        if fresh and (spec.storage is None or spec.storage not in sources):
            new += size
    if min(read, written, matrix or 0.0, vector or 0.0, special) < 0:
        raise ValueError("sizes that do not fit together")
    return Work(
        matrix,
        None if matrix is None else vector,
        read if read_known else None,
        written if written_known else None,
        unique if read_known and written_known else None,
        dtype,
        op_class,
        special,
        new,
    )


def nothing(dtype: str = "") -> Work:
    """A call that computes and moves nothing (a view, an allocation)."""
    return Work(0.0, 0.0, 0, 0, 0, dtype, "movement")


def tensor_at(call: OpCall, index: int) -> TensorSpec | None:
    """The tensor at a position of the schema; ``None`` if absent, not given, or not a tensor."""
    if index >= len(call.args):
        return None
    arg = call.args[index]
    return arg if isinstance(arg, TensorSpec) else None


def need(call: OpCall, index: int) -> TensorSpec:
    """The tensor at a position.

    Raises:
        ValueError: it was not recorded.
    """
    spec = tensor_at(call, index)
    if spec is None:
        raise ValueError(f"{call.name}: no tensor recorded at position {index}")
    return spec


def is_sparse(arg: Arg) -> bool:
    """Whether an argument is a sparse tensor: its layout, then the dense tensors that it holds."""
    return isinstance(arg, tuple) and bool(arg) and str(arg[0]).startswith("sparse_")


def tensors_in(args: Sequence[Arg]) -> list[TensorSpec]:
    """All tensors of some arguments, lists flattened."""
    found: list[TensorSpec] = []
    for arg in args:
        if isinstance(arg, TensorSpec):
            found.append(arg)
        elif isinstance(arg, tuple):
            found += tensors_in(arg)
    return found


def list_at(call: OpCall, index: int) -> list[TensorSpec]:
    """The tensors of a list argument; empty if absent."""
    arg = call.args[index] if index < len(call.args) else None
    return tensors_in(arg) if isinstance(arg, tuple) else []


def integers(arg: Arg) -> tuple[int, ...] | None:
    """A list of integers; ``None`` if it was not recorded in full."""
    if isinstance(arg, int) and not isinstance(arg, bool):
        return (arg,)
    if not isinstance(arg, tuple):
        return None
    found = tuple(n for n in arg if isinstance(n, int) and not isinstance(n, bool))
    return found if len(found) == len(arg) else None


def is_inplace(call: OpCall) -> bool:
    """Whether the operator writes its first argument (by the naming rule of ATen)."""
    return call.name.endswith("_") and not call.name.endswith("__")


def destinations(call: OpCall, arity: int) -> list[TensorSpec]:
    """Tensors after the functional schema's ``arity`` arguments: those of an ``out=`` variant."""
    return tensors_in(call.args[arity:]) if len(call.args) > arity else []


def results(
    call: OpCall, arity: int, shape: Sequence[int], dtype: str
) -> tuple[list[TensorSpec], bool]:
    """Tensors that a call with one result writes, and whether they are newly allocated.

    In order of trust: the ``out=`` argument, ``self`` of an in-place op, the outputs recorded,
    else a contiguous tensor of ``shape`` and ``dtype``.
    """
    given = destinations(call, arity)
    if given:
        return given, False
    if is_inplace(call):
        return [need(call, 0)], False
    if call.outputs:
        return list(call.outputs), True
    return [TensorSpec(tuple(shape), dtype)], True


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that tensors of these shapes broadcast to.

    Raises:
        ValueError: they do not.
    """
    first = shapes[0] if shapes else ()
    if all(shape == first for shape in shapes):
        return first
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if n != 1:
                if result[i] not in (1, n):
                    raise ValueError(f"shapes do not broadcast: {shapes}")
                result[i] = n
    return tuple(result)


def is_float(dtype: str) -> bool:
    """Whether arithmetic on this dtype counts as FLOPs (complex included)."""
    return dtype in _FLOAT_RANK or dtype in _COMPLEX_RANK


def promote(specs: Sequence[TensorSpec]) -> str:
    """The dtype that PyTorch's type promotion gives these tensors; ``""`` if one is unknown.

    Tensors with dimensions outrank 0-dimensional ones of the same category
    (https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).
    """
    if not specs:
        return ""
    first = specs[0].dtype
    if all(spec.dtype == first for spec in specs):
        return first
    best, best_key = "", (-1, False, -1)
    for spec in specs:
        category, rank = _rank(spec.dtype)
        if category < 0:
            return ""
        key = (category, bool(spec.shape), rank)
        if key > best_key:
            best, best_key = spec.dtype, key
        elif key == best_key and spec.dtype != best:
            best = _next_wider(best, spec.dtype)
    return best


def _rank(dtype: str) -> tuple[int, int]:
    if dtype in _FLOAT_RANK:
        return 2, _FLOAT_RANK[dtype]
    if dtype in _INTEGER_RANK:
        return 1, _INTEGER_RANK[dtype]
    if dtype == "bool":
        return 0, 0
    if dtype in _COMPLEX_RANK:
        return 3, _COMPLEX_RANK[dtype]
    return -1, -1


def _next_wider(a: str, b: str) -> str:
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    if {a, b} == {"int8", "uint8"}:
        return "int16"
    return a


def arithmetic_dtype(dtype: str) -> str:
    """The dtype that element-wise arithmetic runs in.

    PyTorch's kernels compute reduced precision in float32 (``at::opmath_type``, ATen/OpMathType.h)
    and complex numbers in their real parts.
    """
    if dtype in ("float32", "float64"):
        return dtype
    if dtype in _REAL_OF:
        return _REAL_OF[dtype]
    return "float32" if dtype in _FLOAT_RANK or dtype == "tf32" else dtype


def product(shape: Sequence[int]) -> int:
    """Elements of a shape."""
    return prod(shape)
