"""Element-wise operators against those that PyTorch itself decomposes them into.

The decompositions are PyTorch's (``torch._decomp``), what each part of one counts is ours.
"""

from __future__ import annotations

from typing import Any

import pytest

from gobrrr.timeline.ops import OpCall, TensorSpec
from gobrrr.work import Work, work_of

pytestmark = pytest.mark.torch

ELEMENTS = 64
EQUAL = (
    "addcmul addcdiv rsub sgn nan_to_num deg2rad rad2deg logical_not isneginf isposinf logit relu "
    "relu6 threshold hardtanh leaky_relu _prelu_kernel hardshrink gelu threshold_backward "
    "hardtanh_backward leaky_relu_backward hardsigmoid_backward sigmoid_backward tanh_backward "
    "silu_backward gelu_backward native_dropout_backward mse_loss mse_loss_backward "
    "soft_margin_loss"
)
# Equal but for the comparisons that choose between values, as a kernel does as well.
GUARDED = (
    "sinc xlogy special_xlog1py special_entr selu logit_backward elu_backward "
    "softplus_backward hardswish_backward"
)
COMPARISONS = frozenset(["eq", "ne", "lt", "le", "gt", "ge", "isnan", "logical_and"])
# A decomposition computes both sides of a ``where``, or a constant for each element.
FEWER = (
    "lerp frac hardsigmoid hardswish logaddexp logaddexp2 silu mish softplus elu celu "
    "mish_backward huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "binary_cross_entropy_backward soft_margin_loss_backward"
)


def call_of(name: str) -> tuple[Any, list[Any]]:
    """The operator, with tensors of so many elements wherever it takes one."""
    import torch

    packet = getattr(torch.ops.aten, name)
    overload = packet.Tensor if "Tensor" in packet.overloads() else packet.default
    args: list[Any] = []
    for argument in overload._schema.arguments:
        if argument.kwarg_only:
            continue
        if str(argument.type) == "Tensor":
            args.append(torch.full((ELEMENTS,), 0.4))
        elif argument.name == "reduction":
            args.append(0)
        elif argument.default_value is not None or "Optional" in str(argument.type):
            args.append(argument.default_value)
        else:
            args.append({"bool": False, "int": 1}.get(str(argument.type), 0.5))
    return overload, args


def recorded(function: Any, args: Any, out: Any) -> Work:
    import torch

    def spec(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return TensorSpec(
            tuple(value.shape), str(value.dtype).removeprefix("torch."), value.stride(), id(value)
        )

    outputs = out if isinstance(out, (tuple, list)) else (out,)
    call = OpCall(
        function._schema.name, tuple(map(spec, args)), tuple(map(spec, outputs)),
        function._overloadname,
    )  # fmt: skip
    work = work_of(call)
    assert work is not None, function
    return work


def counted(name: str, without: frozenset[str] = frozenset()) -> tuple[Work, float]:
    """Its work by its own formula, and the FLOPs of the parts that it is decomposed into.

    ``without``: parts that are not counted.
    """
    from torch._decomp import decomposition_table
    from torch.utils._python_dispatch import TorchDispatchMode

    parts: list[float] = []

    class Parts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if function._schema.name.removeprefix("aten::") not in without:
                parts.append(recorded(function, args, out).vector_flops)
            return out

    operator, args = call_of(name)
    with Parts():
        out = decomposition_table[operator](*args)
    return recorded(operator, args, out), sum(parts)


@pytest.mark.parametrize("name", EQUAL.split())
def test_it_counts_what_its_parts_count(name: str) -> None:
    whole, parts = counted(name)
    assert whole.vector_flops == parts


@pytest.mark.parametrize("name", GUARDED.split())
def test_what_chooses_between_values_is_not_counted(name: str) -> None:
    whole, parts = counted(name, COMPARISONS)
    assert whole.vector_flops == parts


@pytest.mark.parametrize("name", FEWER.split())
def test_it_counts_no_more_than_its_parts_and_not_much_less(name: str) -> None:
    whole, parts = counted(name)
    assert 0.4 * parts <= whole.vector_flops < parts


@pytest.mark.parametrize("name", f"{EQUAL} {GUARDED} {FEWER}".split())
def test_every_tensor_is_read_and_the_result_written(name: str) -> None:
    _, args = call_of(name)
    whole, _ = counted(name)
    tensors = sum(hasattr(each, "shape") for each in args)
    elements = (whole.bytes_read or 0) / 4, whole.bytes_written
    a_bool = name in ("logical_not", "isneginf", "isposinf")
    assert elements == (tensors * ELEMENTS, ELEMENTS * (1 if a_bool else 4))
