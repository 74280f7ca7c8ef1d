"""Recorded inputs of an operator, as the profiler writes them -> ``OpCall``.

The profiler writes four parallel lists: shapes, C++ type names, strides (since PyTorch 2.1), and
values of scalars as text (since 1.13). Equal calls are parsed once: see ``columns``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

# C++ type names of ``c10/core/ScalarType.h``, as compilers demangle them.
DTYPES: dict[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "at::Half": "float16",
    "c10::BFloat16": "bfloat16", "at::BFloat16": "bfloat16",
    "long int": "int64", "long": "int64", "long long": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "signed char": "int8", "char": "int8",
    "unsigned char": "uint8", "bool": "bool",
    "unsigned short": "uint16", "short unsigned int": "uint16", "unsigned int": "uint32",
    "unsigned long": "uint64", "long unsigned int": "uint64",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "c10::complex<c10::Half>": "complex32",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu", "c10::Float4_e2m1fn_x2": "float4_e2m1fn_x2",
    "c10::qint8": "qint8", "c10::quint8": "quint8", "c10::qint32": "qint32",
}  # fmt: skip


# Ranks of one job are read one after the other, and all make the same calls.
@lru_cache(maxsize=1 << 14)
def parse_call(name: str, dims: bytes, types: bytes, strides: bytes, concrete: bytes) -> OpCall:
    """The call that four raw JSON lists describe; an empty text is a list not recorded.

    What cannot be read is ``None``, never a guess.
    """
    shape_list, type_list = _json_list(dims), _json_list(types)
    stride_list, value_list = _json_list(strides), _json_list(concrete)
    count = max(len(shape_list), len(type_list), len(value_list))
    args = tuple(
        _argument(
            _item(shape_list, i), _item(type_list, i), _item(stride_list, i), _item(value_list, i)
        )
        for i in range(count)
    )
    return OpCall(name, args)


def _json_list(text: bytes) -> list[Any]:
    if not text:
        return []
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []
    return found if isinstance(found, list) else []


def _item(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _sizes(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, list) and all(type(n) is int for n in value):
        return tuple(value)
    return None


def _argument(shape: Any, kind: Any, strides: Any, value: Any) -> Arg:
    if not isinstance(kind, str):
        kind = ""
    dtype = DTYPES.get(kind)
    sizes = _sizes(shape)
    if dtype is not None and sizes is not None:
        return _tensor(sizes, dtype, strides)
    if kind in ("TensorList", "GenericList", "") and isinstance(shape, list) and shape:
        if all(isinstance(item, list) for item in shape):
            # The profiler gives a list of tensors one type name; dtypes are then unknown.
            inner = strides if isinstance(strides, list) else []
            return tuple(
                _tensor(item_sizes, "", _item(inner, i))
                for i, item in enumerate(shape)
                if (item_sizes := _sizes(item)) is not None
            )
        if sizes is not None:
            return _tensor(sizes, "", strides)
    if isinstance(value, str):
        return parse_value(value)
    return None


def _tensor(sizes: tuple[int, ...], dtype: str, strides: Any) -> TensorSpec:
    steps = _sizes(strides)
    return TensorSpec(
        sizes, dtype, steps if steps is not None and len(steps) == len(sizes) else None
    )


def parse_value(text: str) -> Arg:
    """A scalar or list of scalars from its text; ``None`` where empty or cut off."""
    text = text.strip()
    if text.startswith("["):
        if not text.endswith("]") or "..." in text:
            return None
        inner = text[1:-1].strip()
        return tuple(parse_value(item) for item in inner.split(",")) if inner else ()
    if text in ("", "None"):
        return None
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
