"""Tensors of a program's own classes: plain subclasses, wrappers around other tensors, hooks."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gobrrr.symbolic.op_graph import CaptureTarget, capture_op_graph  # noqa: E402
from gobrrr.timeline.errors import InputError, UserCodeError  # noqa: E402
from gobrrr.timeline.graph import OpGraph  # noqa: E402
from gobrrr.timeline.ops import TensorSpec  # noqa: E402
from gobrrr.timeline.workload import Workload  # noqa: E402

from .targets import CPU, GPU  # noqa: E402

pytestmark = pytest.mark.torch
both = pytest.mark.parametrize("target", [GPU, CPU])


class Image(torch.Tensor):
    """A tensor that is only another class."""

    def doubled(self) -> Any:
        return self * 2


class Quantised(torch.Tensor):
    """A weight of int8 with a scale for each row, multiplied after its conversion."""

    values: Any
    scale: Any

    @staticmethod
    def __new__(cls, values: Any, scale: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(
            cls, values.shape, dtype=scale.dtype, device=values.device
        )

    def __init__(self, values: Any, scale: Any) -> None:
        self.values, self.scale = values, scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["values", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, _: Any, *__: Any) -> Quantised:
        return Quantised(inner["values"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.t.default:
            return cls(args[0].values.t(), args[0].scale.t())
        if func is torch.ops.aten.detach.default:
            return cls(args[0].values, args[0].scale)
        if func is torch.ops.aten.mm.default:
            x, weight = args
            return (x @ weight.values.to(x.dtype)) * weight.scale
        raise NotImplementedError(func)


def names(graph: OpGraph) -> Counter[str]:
    return Counter(op.call.name for op in graph.ops)


@both
def test_a_plain_subclass_keeps_its_methods(target: CaptureTarget) -> None:
    x = torch.randn(8, 8)

    def step() -> None:
        out = (x.as_subclass(Image) @ x).doubled()
        assert isinstance(out, Image) and type(out).__name__ == "Image"
        assert not isinstance(out.as_subclass(torch.Tensor), Image)

    graph = capture_op_graph(lambda: step, target)
    assert (names(graph)["aten::mm"], names(graph)["aten::mul"]) == (1, 1)


@both
def test_an_input_of_a_plain_subclass_stays_one(target: CaptureTarget) -> None:
    model = torch.nn.Linear(8, 8)
    image = torch.randn(4, 8).as_subclass(Image)
    work = Workload(lambda x: model(x.doubled()), (image,))
    assert names(capture_op_graph(lambda: work, target))["aten::mul"] == 1
    assert type(image) is Image


@both
def test_a_wrapper_does_what_its_class_says(target: CaptureTarget) -> None:
    model = torch.nn.Linear(16, 32, bias=False)
    weight = Quantised(torch.zeros(32, 16, dtype=torch.int8), torch.ones(32, 1))
    model.weight = torch.nn.Parameter(weight, requires_grad=False)
    graph = capture_op_graph(lambda: Workload(model, (torch.randn(4, 16),)), target)
    seen = names(graph)
    assert (seen["aten::_to_copy"], seen["aten::mm"], seen["aten::mul"]) == (1, 1, 1)
    converted = next(op.call for op in graph.ops if op.call.name == "aten::_to_copy")
    given = converted.args[0]
    # The int8 values are what is read: 16 by 32 of them.
    assert isinstance(given, TensorSpec)
    assert (given.shape, given.dtype) == ((16, 32), "int8")
    assert model.weight.values is weight.values


@both
def test_a_wrapper_made_in_the_step(target: CaptureTarget) -> None:
    def step() -> None:
        values = torch.zeros(16, 32, dtype=torch.int8)
        torch.randn(4, 16) @ Quantised(values, torch.ones(32))

    assert names(capture_op_graph(lambda: step, target))["aten::mm"] == 1


@both
def test_a_masked_tensor(target: CaptureTarget) -> None:
    from torch.masked import masked_tensor

    x = torch.randn(8, 8)

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert masked_tensor(x, x > 0).sum(0).get_data().shape == (8,)

    seen = names(capture_op_graph(lambda: step, target))
    assert (seen["aten::gt"], seen["aten::where"], seen["aten::sum"]) == (1, 1, 1)


def test_attributes_and_hooks_of_a_parameter_are_kept() -> None:
    model = torch.nn.Linear(8, 8)
    model.weight.of_expert = True
    assert model.weight.grad is None
    model.weight.register_hook(lambda grad: grad.sin() if model.weight.of_expert else grad)
    optimizers = {model.bias: torch.optim.SGD([model.bias], lr=0.1)}
    model.bias.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())

    def step() -> None:
        model(torch.randn(4, 8)).sum().backward()

    seen = names(capture_op_graph(lambda: step, GPU))
    assert (seen["aten::sin"], seen["aten::_foreach_add_"]) == (1, 1)
    assert list(optimizers) == [model.bias]
    assert model.weight.grad is None and model.bias.grad is None


def test_an_attribute_that_no_tensor_has_is_the_programs_error() -> None:
    with pytest.raises(UserCodeError, match="'Tensor' object has no attribute 'rotated'"):
        capture_op_graph(lambda: lambda: torch.randn(4).rotated(), GPU)


@pytest.mark.parametrize("built", ["before", "in the capture"])
def test_lazy_modules_are_refused_in_a_sentence(built: str) -> None:
    def make() -> Any:
        return torch.nn.Sequential(torch.nn.LazyLinear(3)), torch.randn(2, 4)

    beforehand = make()
    with pytest.raises(InputError, match="lazy modules"):
        capture_op_graph(make if built == "in the capture" else lambda: beforehand, GPU)
