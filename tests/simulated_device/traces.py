"""Arguments of an op as the profiler writes them, and a file of its events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from simulated_device.kernels import Vendor

# C++ type names, as Kineto spells them.
_TYPES = {
    torch.float32: "float", torch.float64: "double", torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16", torch.int64: "long int", torch.int32: "int",
    torch.bool: "bool", torch.uint8: "unsigned char", torch.int8: "signed char",
}  # fmt: skip


# Of longer lists PyTorch's profiler writes no shapes: seen of 60 tensors (torch 2.11, an H200), not
# of 11.
LONGEST_LIST = 30


def inputs_of(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """``Input Dims``, ``Input type``, ``Input Strides`` and ``Concrete Inputs`` of a call.

    All arguments of the schema, with their defaults.
    """
    values = list(args)
    schema = getattr(func, "_schema", None)
    for argument in schema.arguments[len(args) :] if schema is not None else ():
        default = argument.default_value if argument.has_default_value() else None
        values.append(kwargs.get(argument.name, default))
    columns = [_input(value) for value in values]
    keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    return {key: [column[i] for column in columns] for i, key in enumerate(keys)}


def _input(value: Any) -> tuple[Any, str, Any, str]:
    if isinstance(value, torch.Tensor):
        return list(value.shape), _TYPES[value.dtype], list(value.stride()), ""
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(item, torch.Tensor) for item in value):
            if len(value) > LONGEST_LIST:
                return [], "TensorList", [], ""
            shapes, strides = ([list(f(t)) for t in value] for f in (_shape, _stride))
            return shapes, "TensorList", strides, ""
        if all(isinstance(item, (int, float, bool)) for item in value):
            return [], "ScalarList", [], str(list(value))
        return [], "", [], ""
    if isinstance(value, (bool, int, float)):
        return [], "Scalar", [], str(value)
    return [], "", [], ""


def _shape(tensor: Any) -> Any:
    return tensor.shape


def _stride(tensor: Any) -> Any:
    return tensor.stride()


def write_trace(path: Path, events: list[dict[str, Any]], vendor: Vendor, devices: int = 1) -> None:
    """A trace of PyTorch's profiler with these events, where so many devices are."""
    content = {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": device, "name": vendor.device, "totalGlobalMem": vendor.memory_bytes,
             "numSms": vendor.multiprocessors, "warpSize": 32 if vendor.kind == "cuda" else 64}
            for device in range(devices)
        ],
        "record_shapes": 1,
        "with_stack": int(any(event["cat"] == "python_function" for event in events)),
        f"{vendor.runtime}_runtime_version": 12080,
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "displayTimeUnit": "ms",
        "traceEvents": events,
    }  # fmt: skip
    path.write_text(json.dumps(content))
