"""An operator written as text, ``mm(4096x4096, 4096x4096, bf16)``, as something that can be run."""

from __future__ import annotations

import ast
import difflib
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.timeline.errors import InputError

_DTYPES = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "half": "float16",
    "bf16": "bfloat16", "fp8": "float8_e4m3fn", "float64": "float64", "float32": "float32",
    "float16": "float16", "bfloat16": "bfloat16", "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2", "int8": "int8", "uint8": "uint8", "int32": "int32",
    "int64": "int64", "bool": "bool",
}  # fmt: skip
_CALL = re.compile(r"\s*(?P<name>[A-Za-z_][\w.:]*)\s*\((?P<arguments>.*)\)\s*\Z", re.DOTALL)
_SHAPE = re.compile(r"(?P<shape>\d+(?:x\d+)*)(?::(?P<dtype>\w+))?\Z")
EXAMPLE = "mm(4096x4096, 4096x4096, bf16) or softmax(8192x4096, dim=-1)"


@dataclass(frozen=True, slots=True)
class WrittenOp:
    """An operator as it was written.

    Attributes:
        name: ``"mm"``, ``"conv2d"``.
        arguments: shapes as tuples with a dtype (``Shape``), or plain values.
        keywords: the same, by name.
        tf32: whether float32 products may run in TF32.
    """

    name: str
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor that the operator takes."""

    sizes: tuple[int, ...]
    dtype: str


def parse_op(text: str) -> WrittenOp:
    """The operator that ``text`` names, with its arguments.

    A shape is ``4096x4096`` (one dimension: ``4096x1`` has two, ``[4096]`` one), with a dtype of
    its own after a colon; a dtype alone holds for all others; ``name=value`` are keywords.

    Raises InputError if it cannot be read.
    """
    match = _CALL.match(text)
    if match is None:
        raise InputError(f"cannot read the op {text!r}: write it like {EXAMPLE}")
    dtype, tf32 = "float32", False
    plain: list[Any] = []
    keywords: list[tuple[str, Any]] = []
    for part in _split(match["arguments"]):
        key, equals, value = part.partition("=")
        if equals and key.strip().isidentifier():
            keywords.append((key.strip(), _value(value.strip(), text)))
        elif part in _DTYPES:
            dtype, tf32 = _DTYPES[part], part == "tf32"
        else:
            plain.append(_value(part, text))
    return WrittenOp(
        match["name"],
        tuple(_typed(value, dtype) for value in plain),
        tuple((key, _typed(value, dtype)) for key, value in keywords),
        tf32,
    )


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for i, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def _value(part: str, text: str) -> Any:
    match = _SHAPE.match(part)
    if match is not None and ("x" in match["shape"] or match["dtype"]):
        dtype = match["dtype"] or ""
        if dtype and dtype not in _DTYPES:
            raise InputError(f"no dtype {dtype!r} in {text!r}; there are {', '.join(_DTYPES)}")
        sizes = tuple(int(n) for n in match["shape"].split("x"))
        return Shape(sizes, _DTYPES.get(dtype, ""))
    if part.startswith("[") and re.fullmatch(r"\[\s*\d+\s*\]", part):
        return Shape((int(part.strip("[] ")),), "")
    if part.startswith("[") and "x" in part:
        return [_value(item, text) for item in _split(part[1:-1])]
    try:
        return ast.literal_eval(part)
    except (ValueError, SyntaxError):
        raise InputError(f"cannot read {part!r} in {text!r}: write the op like {EXAMPLE}") from None


def _typed(value: Any, dtype: str) -> Any:
    if isinstance(value, Shape):
        return value if value.dtype else Shape(value.sizes, dtype)
    if isinstance(value, list):
        return [_typed(item, dtype) for item in value]
    return value


# CUDA's kernels take the second matrix of these column-major only, which sizes do not say.
_COLUMN_MAJOR_SECOND = frozenset({"_scaled_mm"})


def call_of(op: WrittenOp) -> Callable[[], Callable[[], Any]]:
    """A function that makes the op's tensors and returns the step that runs it.

    It is to be called inside a capture, where tensors take no memory.

    Raises InputError if PyTorch has no such function.
    """
    function = _function(op.name)

    def make() -> Callable[[], Any]:
        import torch

        arguments = [_tensors(value) for value in op.arguments]
        if op.name in _COLUMN_MAJOR_SECOND:
            arguments[1:2] = [matrix.t().contiguous().t() for matrix in arguments[1:2]]
        keywords = {key: _tensors(value) for key, value in op.keywords}

        def step() -> Any:
            with torch.no_grad(), warnings.catch_warnings():
                # What PyTorch advises about a call is for who writes programs.
                warnings.simplefilter("ignore", UserWarning)
                try:
                    return function(*arguments, **keywords)
                except (TypeError, RuntimeError, ValueError, IndexError) as error:
                    first = _first_line(error)
                    raise InputError(f"PyTorch refuses this {op.name}: {first}") from error

        return step

    return make


def _function(name: str) -> Callable[..., Any]:
    import torch
    from torch.nn import functional

    short = name.removeprefix("aten::").removeprefix("torch.").removeprefix("F.")
    homes: tuple[Any, ...] = (functional, torch, torch.ops.aten)
    if name.startswith("aten::"):
        homes = (torch.ops.aten,)
    for home in homes:
        found = getattr(home, short, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
    known = [n for n in (*dir(functional), *dir(torch)) if n.islower() and not n.startswith("_")]
    near = difflib.get_close_matches(short, known, n=3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise InputError(f"PyTorch has no function {name!r}{hint}")


def _first_line(error: Exception) -> str:
    """What is wrong; the list of accepted signatures that may follow it is left out."""
    first = str(error).strip().splitlines()[0].removesuffix(", but expected one of:")
    if "got (int" in first:
        first += "; a number alone is a number, and a tensor of one dimension is written [4096]"
    return first


def _tensors(value: Any) -> Any:
    import torch

    if isinstance(value, Shape):
        return torch.empty(value.sizes, dtype=getattr(torch, value.dtype))
    if isinstance(value, list):
        return [_tensors(item) for item in value]
    return value
