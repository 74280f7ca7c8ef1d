"""Arguments and results of an operator as plain data; nothing here keeps a tensor alive."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from gobrrr.observe.sparse_gradients import parts_of
from gobrrr.timeline.ops import Arg, TensorSpec


class Signature(NamedTuple):
    """What a schema says of an overload: qualified name, overload, arguments with defaults."""

    name: str
    overload: str
    arguments: tuple[tuple[str, Arg], ...]


@lru_cache(maxsize=4096)
def signature_of(func: Any) -> Signature:
    """The signature of an ``OpOverload`` (read once: each access crosses into C++)."""
    schema = func._schema
    arguments = tuple((a.name, describe_value(a.default_value)) for a in schema.arguments)
    return Signature(schema.name, schema.overload_name, arguments)


def describe_arguments(
    signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Arg, ...]:
    """Arguments in the schema's order, defaults filled in, tensors as ``TensorSpec``."""
    described = [describe_value(value) for value in args]
    for name, default in signature.arguments[len(args) :]:
        described.append(describe_value(kwargs[name]) if name in kwargs else default)
    return tuple(described)


def describe_value(value: Any) -> Arg:
    """One argument as plain data; what has no plain form (a generator, a callable) is ``None``.

    A sparse tensor is a tuple of its layout and the dense ones that it holds, its values last.
    """
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        return tuple([describe_value(item) for item in value])
    import torch

    if isinstance(value, torch.Tensor):
        # Most tensors are strided, and those hold no others.
        parts = () if value.layout is torch.strided else parts_of(value)
        if parts:
            return (short_name(value.layout), *map(describe_tensor, parts))
        return describe_tensor(value)
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format, torch.device)):
        return short_name(value)
    for kind in (int, float):
        if isinstance(value, getattr(torch, f"Sym{kind.__name__.capitalize()}")):
            return _plain_number(value, kind)
    return _group_name(value) if isinstance(value, torch.ScriptObject) else None


_PLAIN = (bool, int, float, str)


def _group_name(value: Any) -> str | None:
    """The name of a process group, as collectives are given it; ``None`` for other objects."""
    import torch

    if not torch.distributed.is_available():
        return None
    try:
        return str(torch.distributed.ProcessGroup.unbox(value).group_name)
    except (AttributeError, RuntimeError):
        return None


@lru_cache(maxsize=256)
def short_name(value: Any) -> str:
    """``torch.float32`` -> ``float32``, ``device(type="cuda", index=0)`` -> ``cuda:0``."""
    return str(value).removeprefix("torch.")


def _plain_number(value: Any, kind: type[int] | type[float]) -> int | float | None:
    try:
        return kind(value)
    except Exception:  # a symbol without a value raises an error of torch's symbolic shapes
        return None


def describe_tensor(tensor: Any) -> TensorSpec | None:
    """Shape, dtype, strides, storage, offset and device of a tensor.

    ``None`` for layouts whose bytes do not follow from a shape (sparse, nested). A storage's id
    can come back for another tensor once the first is freed.
    """
    import torch

    layout = tensor.layout
    if layout not in (torch.strided, torch._mkldnn):
        return None
    strides = storage = offset = None
    try:
        if layout is torch.strided:
            strides = _integers(tensor.stride())
            offset = int(tensor.storage_offset())
            storage = _storage_of(tensor)
        return _spec(
            _integers(tensor.shape),
            short_name(tensor.dtype),
            strides,
            storage,
            short_name(tensor.device),
            offset,
        )
    except (RuntimeError, NotImplementedError, TypeError):
        # Nested tensors of the strided layout have neither sizes nor strides.
        return None


# Steps use the same tensors again and again, and memory that is freed comes back: one object for
# each distinct one takes less memory and time than one for each use.
_spec = lru_cache(maxsize=8192)(TensorSpec)


def _integers(values: Any) -> tuple[int, ...]:
    plain = tuple(values)
    for n in plain:
        # Symbolic sizes (of jagged tensors) stand for integers.
        if type(n) is not int:
            return tuple([int(n) for n in plain])
    return plain


def _storage_of(tensor: Any) -> int | None:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None


def describe_outputs(result: Any) -> tuple[TensorSpec, ...] | None:
    """The tensors of a result, lists flattened, of sparse ones the dense tensors that they hold.

    ``None`` if one of them has no plain form.
    """
    import torch

    found: list[TensorSpec] = []
    pending = [result]
    while pending:
        item = pending.pop()
        if isinstance(item, torch.Tensor):
            parts = () if item.layout is torch.strided else parts_of(item)
            if parts:
                pending.extend(reversed(parts))
                continue
            spec = describe_tensor(item)
            if spec is None:
                return None
            found.append(spec)
        elif isinstance(item, (list, tuple)):
            pending.extend(reversed(item))
    return tuple(found)


def any_packed(args: Any) -> bool:
    """Whether there is an object of TorchScript among the arguments, or in a list of them."""
    import torch

    return any(
        any_packed(v) if type(v) in (list, tuple) else isinstance(v, torch.ScriptObject)
        for v in args
    )
