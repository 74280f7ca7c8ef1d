"""Measured times of single ops and small programs, as calls with what was measured beside them.

The files and how each was timed: the README of the folder that holds them. What follows from that:

- ``linear_bf16``: one call inside a replayed CUDA graph, no launch in the time. Six weights take
  turns, so the weight of a call is warm only if all six fit the last-level cache beside its input
  and its result.
- float32 ops: CUDA events around one eager call on an idle device. The host's way to the launch
  is in the time (25 to 60 us); ``launches`` of ``run`` takes it out. Inputs are the same
  each time and warm if they fit the cache.
- programs: wall time of a program's calls, one launch gap in it.
"""

from __future__ import annotations

import ast
import csv
import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from math import prod
from pathlib import Path

from gobrrr.timeline.ops import Arg, OpCall, TensorSpec

# File name's device -> key of the data sheet.
DEVICES = {
    "a100_sxm": "A100-SXM-80GB", "h100_sxm": "H100-SXM", "l40s": "L40S",
    "a100_pcie_40gb": "A100-PCIe-40GB", "a100_pcie_80gb": "A100-PCIe-80GB",
    "v100_pcie": "V100-PCIe", "p100": "P100-PCIe", "t4": "T4", "p4": "P4",
}  # fmt: skip
_STORAGES = count(1)
# Calls of a program that move nothing or are bookkeeping of the stand-in that listed them.
_BOOKKEEPING = frozenset({"aten::empty", "aten::detach", "aten::empty_like", "aten::empty_strided"})


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row.

    Attributes:
        device: key of the data sheet.
        kind: class that errors are reported by (``linear bf16``, ``conv fp32``, ``chain``, ...).
        name: says which row it is.
        calls: the ops in order.
        others_bytes: bytes that other calls put through the cache between two repeats.
        measured_s: what was measured.
        eager: whether the host's way to the launch is in it.
        fitted: whether constants may be fitted on it; the others are reported.
    """

    device: str
    kind: str
    name: str
    calls: tuple[OpCall, ...]
    others_bytes: int
    measured_s: float
    eager: bool
    fitted: bool


def half_of(key: str) -> bool:
    """Whether the row with this key belongs to the half that constants may be fitted on."""
    return sha256(key.encode()).digest()[0] % 2 == 0


def read_rows(folder: Path) -> Iterator[Row]:
    """All rows of the folder, by file."""
    for path in sorted(folder.glob("*.csv*")):
        stem = path.name.split(".")[0]
        op, dtype, device = [*stem.split("_", 2), "", ""][:3]
        if op == "nccl" or device not in DEVICES:
            continue
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            for record in csv.DictReader(lines):
                if op == "programs":
                    row = _program(record, DEVICES[device])
                else:
                    row = _single(op, dtype, DEVICES[device], record)
                if row is not None:
                    yield row


def _tensor(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return TensorSpec(shape, dtype, tuple(reversed(strides)), next(_STORAGES), "cuda", 0)


def _single(op: str, dtype: str, device: str, record: dict[str, str]) -> Row | None:
    def number(name: str) -> int:
        return int(float(record[name]))

    kind = f"{op} {dtype}"
    name = ",".join(v for k, v in record.items() if k not in ("ms", "kernel", "kernels"))
    fitted = half_of(f"{op}:{name}")
    others = 0
    measured_s = float(record["ms"]) * 1e-3
    if op == "linear" and dtype == "bf16":
        m, n, k = number("m"), number("n"), number("k")
        fitted = half_of(f"linear:{n},{k}")
        out = (_tensor((m, n), "bfloat16"),)
        call = OpCall(
            "aten::mm", (_tensor((m, k), "bfloat16"), _tensor((k, n), "bfloat16")), out, "default"
        )
        others = 5 * n * k * 2
        return Row(device, kind, name, (call,), others, measured_s, False, fitted)
    if op == "attention":
        batch, length = number("batch_size"), number("isl")
        heads, shared, width = (
            number("num_heads"), number("num_key_value_heads"), number("head_dim"),
        )  # fmt: skip
        q = _tensor((batch, heads, length, width), "bfloat16")
        k, v = (_tensor((batch, shared, length, width), "bfloat16") for _ in range(2))
        out = (
            _tensor((batch, heads, length, width), "bfloat16"),
            _tensor((batch, heads, length), "float32"),
        )
        call = OpCall(
            "aten::_scaled_dot_product_flash_attention", (q, k, v, 0.0, True, False, None), out,
            "default",
        )  # fmt: skip
        return Row(device, kind, name, (call,), 0, measured_s, False, fitted)
    calls = _CALLS[op](record) if op in _CALLS else None
    if calls is None:
        return None
    return Row(device, kind, name, (calls,), 0, measured_s, True, fitted)


def _bmm(r: dict[str, str]) -> OpCall:
    b, m, n, k = (int(r[x]) for x in "BMNK")
    f = "float32"
    return OpCall(
        "aten::bmm", (_tensor((b, m, n), f), _tensor((b, n, k), f)), (_tensor((b, m, k), f),),
        "default",
    )  # fmt: skip


def _linear(r: dict[str, str]) -> OpCall:
    b, m, n, k = (int(r[x]) for x in "BMNK")
    f = "float32"
    weight = TensorSpec((n, k), f, (1, n), next(_STORAGES), "cuda", 0)
    return OpCall(
        "aten::addmm", (_tensor((k,), f), _tensor((b * m, n), f), weight, 1, 1),
        (_tensor((b * m, k), f),), "default",
    )  # fmt: skip


def _conv(r: dict[str, str]) -> OpCall:
    images, cin, cout, window, size, stride, padding = (
        int(r[x])
        for x in (
            "B", "Input_Channel", "Output_Channel", "Kernel_Size", "Input_Size", "Stride",
            "Padding",
        )
    )  # fmt: skip
    out = (size + 2 * padding - window) // stride + 1
    f = "float32"
    return OpCall(
        "aten::cudnn_convolution",
        (
            _tensor((images, cin, size, size), f), _tensor((cout, cin, window, window), f),
            (padding, padding), (stride, stride), (1, 1), 1, True, False, False,
        ),
        (_tensor((images, cout, out, out), f),), "default",
    )  # fmt: skip


def _rowwise(name: str):  # type: ignore[no-untyped-def]
    def call(r: dict[str, str]) -> OpCall:
        b, h = int(r["B"]), int(r["H"])
        f = "float32"
        x, y, out = _tensor((b, h), f), _tensor((b, h), f), _tensor((b, h), f)
        if name == "ln":
            stats = (_tensor((b, 1), f), _tensor((b, 1), f))
            args: tuple[Arg, ...] = (x, (h,), _tensor((h,), f), _tensor((h,), f), 1e-5)
            return OpCall("aten::native_layer_norm", args, (out, *stats), "default")
        if name == "softmax":
            return OpCall("aten::_softmax", (x, 1, False), (out,), "default")
        if name in ("add", "mul"):
            extra = (1,) if name == "add" else ()
            return OpCall(f"aten::{name}", (x, y, *extra), (out,), "Tensor")
        if name == "addu":
            return OpCall("aten::add", (x, 2.0, 1), (out,), "Tensor")
        if name == "powu":
            return OpCall("aten::pow", (x, 2), (out,), "Tensor_Scalar")
        if name == "gelu":
            return OpCall("aten::gelu", (x, "none"), (out,), "default")
        return OpCall(f"aten::{name}", (x,), (out,), "default")

    return call


_CALLS = {
    "bmm": _bmm, "linear": _linear, "conv": _conv,
    **{
        name: _rowwise(name)
        for name in ("ln", "softmax", "add", "mul", "addu", "gelu", "relu", "tanh", "powu")
    },
}  # fmt: skip

_TENSOR = re.compile(r"(float32|float16|bfloat16|int64|bool|uint8|int32)\[([\d, ]*)\]")
_CALL = re.compile(r"(\w+)\.(\w+)\.(\w+)\((.*)\)$")


def _program(record: dict[str, str], device: str) -> Row | None:
    calls = []
    for text in record["ops"].split("; "):
        found = _CALL.match(text.strip())
        if found is None:
            return None
        call = _parsed(*found.groups())
        if call is None:
            return None
        if call.name not in _BOOKKEEPING:
            calls.append(call)
    if not calls:
        return None
    kind = "program, one op" if len(calls) == 1 else (
        "program, chain" if len(calls) <= 8 else "program, network"
    )  # fmt: skip
    return Row(
        device, kind, f"program {record['id']}", tuple(calls), 0, float(record["ms"]) * 1e-3, True,
        half_of(f"program:{record['id']}"),
    )  # fmt: skip


def _parsed(space: str, name: str, overload: str, arguments: str) -> OpCall | None:
    tensors: list[TensorSpec] = []

    def stand_for(match: re.Match[str]) -> str:
        shape = tuple(int(n) for n in match.group(2).split(",") if n.strip())
        tensors.append(_tensor(shape, match.group(1)))
        return f"('T', {len(tensors) - 1})"

    text = _TENSOR.sub(stand_for, arguments)
    # Keyword arguments of the listing (dtype=..., device=...) say nothing about work.
    text = re.sub(r",?\s*\w+=(?:torch\.\w+|device\([^)]*\)|\w+)", "", text)
    try:
        values = ast.literal_eval(f"({text},)") if text.strip() else ()
    except (ValueError, SyntaxError):
        return None

    def back(value: object) -> Arg:
        if isinstance(value, tuple) and len(value) == 2 and value[0] == "T":
            return tensors[value[1]]
        if isinstance(value, (list, tuple)):
            return tuple(back(item) for item in value)
        return value  # type: ignore[return-value]

    args = tuple(back(value) for value in values)
    return OpCall(f"{space}::{name}", args, _outputs(name, args, tensors), overload)


def _outputs(
    name: str, args: tuple[Arg, ...], tensors: list[TensorSpec]
) -> tuple[TensorSpec, ...] | None:
    """Results, by running the operator on meta tensors; ``None`` where that fails."""
    import torch

    def meta(value: Arg) -> object:
        if isinstance(value, TensorSpec):
            return torch.empty(value.shape, dtype=getattr(torch, value.dtype), device="meta")
        if isinstance(value, tuple):
            return [meta(item) for item in value]
        return value

    try:
        result = getattr(torch.ops.aten, name)(*(meta(value) for value in args))
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return None
    found = result if isinstance(result, (tuple, list)) else (result,)
    return tuple(
        _tensor(tuple(t.shape), str(t.dtype).removeprefix("torch."))
        for t in found
        if isinstance(t, torch.Tensor)
    )


def moved_bytes(calls: tuple[OpCall, ...]) -> int:
    """Bytes of all tensors of the calls, a rough working set."""
    return sum(
        prod(t.shape) * (t.item_size_bytes or 0)
        for call in calls
        for t in (*call.tensors, *(call.outputs or ()))
    )
